package soak

import "time"

// now reads the wall clock: what Go shows of the monotonic one, processes do
// not share. It must not be set meanwhile.
func now() time.Duration { return time.Duration(time.Now().UnixNano()) }
