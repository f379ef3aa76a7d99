package soak

import (
	"syscall"
	"time"
	"unsafe"
)

// now reads the monotonic clock, which is comparable across processes on Linux.
func now() time.Duration {
	const monotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}
