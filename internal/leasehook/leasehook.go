// Package leasehook lets tests simulate a pause of the process by changing the
// clocks of a driver.Lease, which package driver does not export.
package leasehook

import "time"

// Skew advances the clocks read by lease, a *driver.Lease, by d without firing
// its timers, like a pause of the process or a suspended machine. It is set by
// package driver.
var Skew func(lease any, d time.Duration)
