//go:build linux || darwin

package demo

import (
	"syscall"
	"unsafe"
)

// columnsOf returns the width of a terminal, or 0 if the file with that descriptor is
// no terminal.
func columnsOf(fd uintptr) int {
	var size struct{ rows, columns, width, height uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0
	}
	return int(size.columns)
}
