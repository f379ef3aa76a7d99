package soak

import "time"

// now reads the wall clock, because the test compares times of several processes,
// and the monotonic times that Go shows can be compared within one process only.
// The wall clock must not be set while the test runs.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
