package dlocktest

import (
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
)

// SkewLease makes a lease see both of its clocks d further on from now, while its
// timer knows nothing of it: as after a pause of the process, or a sleep of the
// machine. A driver whose session leaves rule 8 to a [driver.Lease] plays
// [Config.Pause] with it:
//
//	Pause: func(t *testing.T, s driver.Session, d time.Duration) {
//		dlocktest.SkewLease(s.(*session).lease, d)
//	},
//
// Err of the lease tells the truth at once, and Done closes when its timer looks
// next, a quarter of the term later at most. Renewals count from the later clock
// then. Skews add up; a negative one sets the clocks back, which a lease must
// survive, too. SkewLease may be called from any goroutine. It is for tests: no
// program may turn the clocks of a lease.
func SkewLease(l *driver.Lease, d time.Duration) { leasehook.Skew(l, d) }
