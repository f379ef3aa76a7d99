//go:build !unix

package zktest

// alive is not called: this system runs no servers.
func alive(int) bool { return false }
