package sqlite

import (
	"syscall"
	"time"
)

// sleep is exact below a millisecond, unlike time.Sleep in an idle process.
func sleep(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal at worst ends the sleep early
}
