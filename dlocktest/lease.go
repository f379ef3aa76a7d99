package dlocktest

import (
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
)

// SkewLease moves both clocks of a lease on by d: the wall clock, and the
// monotonic clock. It leaves the timer of the lease as it was. A lease sees the
// same after a pause of its process or a sleep of the
// machine. If the sessions of a driver leave rule 8 to a [driver.Lease], its
// test plays [Config.Pause] with SkewLease:
//
//	Pause: func(t *testing.T, s driver.Session, d time.Duration) {
//		dlocktest.SkewLease(s.(*session).lease, d)
//	},
//
// Err of the lease reads the clocks, so it returns the end of the session at
// once. Done closes when the timer of the lease fires next, after a quarter of
// the term at most. Later renewals count from the new clock. Several skews add
// up, and a negative d sets the clocks back. SkewLease may be called from any
// goroutine. It is for tests only.
func SkewLease(l *driver.Lease, d time.Duration) { leasehook.Skew(l, d) }
