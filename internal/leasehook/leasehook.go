// Package leasehook lets tests simulate a pause of the process, by setting the
// clocks of a driver.Lease, for which package driver exports no function.
package leasehook

import "time"

// Skew moves the clocks that a lease reads forward by d, without its timers
// noticing, like a pause of the process or a sleep of the machine. The
// parameter lease is a *driver.Lease. Set by package driver.
var Skew func(lease any, d time.Duration)
