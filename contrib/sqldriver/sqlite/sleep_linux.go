package sqlite

import (
	"syscall"
	"time"
)

// sleep can sleep for less than a millisecond, unlike time.Sleep in an
// otherwise idle process.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal only ends the sleep early
}
