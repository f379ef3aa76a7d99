package sqlite

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// bootName identifies the clock that bootClock reads, by the boot ID and the
// time namespace.
var bootName = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, _ := os.Readlink("/proc/self/ns/time") // no link before Linux 5.6
	return strings.TrimSpace(string(id)) + namespace
})

// bootClock returns bootName and the time since boot, including sleep. That
// clock cannot be set.
func bootClock(now time.Time) (boot string, since time.Duration) {
	const clockBootTime = 7 // in linux/time.h
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBootTime, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 || bootName() == "" {
		return "", time.Duration(now.UnixNano())
	}
	return bootName(), time.Duration(t.Nano())
}
