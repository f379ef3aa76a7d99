// Package leasehook lets tests play a paused process. It reaches the clocks of
// a driver.Lease, which have no exported way to be set.
package leasehook

import "time"

// Skew moves the clocks that a lease reads forward by d, from now on. The
// parameter lease is a *driver.Lease. The timers of the lease do not notice, as
// after a pause of the process or a sleep of the machine. Package driver sets
// the variable Skew.
var Skew func(lease any, d time.Duration)
