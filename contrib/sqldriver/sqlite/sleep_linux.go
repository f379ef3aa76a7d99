package sqlite

import (
	"syscall"
	"time"
)

// sleep sleeps for less than a millisecond. In a process without other work,
// time.Sleep would sleep for a millisecond at least.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal only ends the sleep early
}
