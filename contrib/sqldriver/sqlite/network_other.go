//go:build !linux

package sqlite

// networkFileSystem always returns "", because the driver can't detect network
// file systems on this system.
func networkFileSystem(string) string { return "" }

// freeSpace returns false, because the space is unknown on this system.
func freeSpace(string) (bytes uint64, known bool) { return 0, false }
