//go:build !unix

package zktest

// alive exists only so that the tests compile: this system runs no servers, so
// nothing calls alive.
func alive(int) bool { return false }
