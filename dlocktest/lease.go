package dlocktest

import (
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
)

// SkewLease advances the wall clock and the monotonic clock of a lease by d
// without running its timer, as if the process had been paused or the machine
// had been asleep. A driver whose sessions report their end by a [driver.Lease]
// implements [Config.Pause] with it:
//
//	Pause: func(t *testing.T, s driver.Session, d time.Duration) {
//		dlocktest.SkewLease(s.(*session).lease, d)
//	},
//
// The lease's Err reports the end of the session immediately. Done is closed
// when the lease's timer next fires, after at most a quarter of the term. Skews
// add up, and a negative d sets the clocks back. SkewLease is safe for
// concurrent use, and for tests only.
func SkewLease(l *driver.Lease, d time.Duration) { leasehook.Skew(l, d) }
