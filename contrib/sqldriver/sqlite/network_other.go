//go:build !linux

package sqlite

// networkFileSystem returns an empty string: on this system the driver does not
// find out whether a directory is on a network file system.
func networkFileSystem(string) string { return "" }
