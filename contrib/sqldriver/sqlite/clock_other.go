//go:build !linux

package sqlite

import "time"

// bootClock returns the wall clock. Only on Linux does it read the boot clock.
func bootClock(now time.Time) (string, time.Duration) { return "", time.Duration(now.UnixNano()) }
