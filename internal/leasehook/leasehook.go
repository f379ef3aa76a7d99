// Package leasehook lets tests simulate a pause of the process by changing the
// clocks of a driver.Lease, which package driver does not export.
package leasehook

import "time"

// Skew advances the clocks of a *driver.Lease by d without firing its timer, as
// if the process had been suspended. Package driver sets Skew.
var Skew func(lease any, d time.Duration)
