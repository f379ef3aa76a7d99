package soak

import "time"

// now reads the wall clock, because Go's monotonic readings cannot be compared
// across processes. The clock must not be set while the test runs.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
