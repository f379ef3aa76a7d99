//go:build !linux

package sqlite

// networkFileSystem always returns "", because the driver can't detect network
// file systems on this system.
func networkFileSystem(string) string { return "" }
