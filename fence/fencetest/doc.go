// Package fencetest tests whether a resource refuses late writes, by comparing
// fencing tokens as package fence describes. It is for authors of applications
// whose resource compares tokens in its own way, such as a service, a file or a
// table.
//
// The test implements [Resource] with the code of the application, and calls
// [Run]:
//
//	func TestAccount(t *testing.T) {
//		fencetest.Run(t, func(t *testing.T) fencetest.Resource { return newAccount(t) })
//	}
package fencetest
