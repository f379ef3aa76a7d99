// Package leasehook lets tests simulate a pause of the process. It sets the
// clocks of a driver.Lease, for which package driver exports no function.
package leasehook

import "time"

// Skew moves the clocks that a lease reads forward by d, from now on. The
// parameter lease is a *driver.Lease. The timers of the lease do not notice, as
// after a pause of the process or a sleep of the machine. Package driver sets
// the variable Skew.
var Skew func(lease any, d time.Duration)
