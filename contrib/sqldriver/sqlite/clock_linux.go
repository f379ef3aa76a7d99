package sqlite

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// bootName names the clock that bootClock reads: that of this boot, in this time
// namespace. It is empty if it cannot be named.
var bootName = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, _ := os.Readlink("/proc/self/ns/time") // no link before Linux 5.6
	return strings.TrimSpace(string(id)) + namespace
})

// bootClock returns the time since the machine has booted, asleep or not, and
// which boot that is. Unlike the wall clock it cannot be set.
func bootClock(now time.Time) (boot string, since time.Duration) {
	const clockBootTime = 7 // in linux/time.h
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBootTime, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 || bootName() == "" {
		return "", time.Duration(now.UnixNano())
	}
	return bootName(), time.Duration(t.Nano())
}
