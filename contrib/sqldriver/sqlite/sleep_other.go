//go:build !linux

package sqlite

import "time"

// sleep sleeps for d, or longer if the system's timers are coarse.
func sleep(d time.Duration) { time.Sleep(d) }
