//go:build !linux

package sqlite

import "time"

// sleep sleeps for less than a millisecond, if the system can.
func sleep(d time.Duration) { time.Sleep(d) }
