//go:build !linux

package sqlite

import "time"

// sleep sleeps for less than a millisecond, or for a little more if the system does
// not sleep for so short a time.
func sleep(d time.Duration) { time.Sleep(d) }
