//go:build !linux

package sqlite

import "time"

// bootClock returns the wall clock in place of the boot's.
func bootClock(now time.Time) (string, time.Duration) { return "", time.Duration(now.UnixNano()) }
