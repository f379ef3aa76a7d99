// Package leasehook lets tests play a paused process. It reaches the clocks of
// a driver.Lease, which have no exported way to be set.
package leasehook

import "time"

// Skew moves the clocks that lease, a *driver.Lease, reads forward by d from
// now on. Its timers do not notice, as after a pause of the process or a sleep
// of the machine. Package driver sets Skew.
var Skew func(lease any, d time.Duration)
