//go:build !linux

package sqlite

import "time"

// bootClock returns the wall clock. It reads the boot clock only on Linux.
func bootClock(now time.Time) (string, time.Duration) { return "", time.Duration(now.UnixNano()) }
