package sqlite

import (
	"syscall"
	"time"
)

// sleep sleeps for d, even if that is less than a millisecond. time.Sleep may
// take longer in an otherwise idle process.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal at worst ends the sleep early
}
