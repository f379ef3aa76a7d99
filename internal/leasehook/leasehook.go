// Package leasehook lets memdriver play a paused process: it reaches the clock of a
// driver.Lease, which has no exported way to be set.
package leasehook

import "time"

// Skew makes lease, a *driver.Lease, see its clocks d further on from now, while its timers
// know nothing of it: as after a pause of the process, or a sleep of the machine. Package
// driver sets it.
var Skew func(lease any, d time.Duration)
