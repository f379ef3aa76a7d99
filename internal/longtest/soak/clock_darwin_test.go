package soak

import "time"

// now reads the wall clock, because the processes do not share what Go shows of
// the monotonic clock. The wall clock must not be set while the test runs.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
