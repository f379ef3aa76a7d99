package dlocktest

import (
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// lockSabotages must be caught by the cases that use dlock's locks.
var lockSabotages = []sabotage{
	{"always says that no node is ahead; seen in locks", "see rule 5", tells(nothing)},
	{"sends Released without knowing what operators removed; seen in locks", "see rule 13", overtaking(notItself)},
	{"removes only one node when a connection breaks under many creates", "a field for the create in doubt",
		func(s *faulty) {
			var resets, cleaned atomic.Int32
			s.reset = func() { resets.Add(1) }
			s.on(faults.OpCreate, func(r *request, send func()) {
				before := resets.Load()
				send()
				time.Sleep(time.Millisecond)
				now := resets.Load()
				if r.err != nil || now == before {
					return
				}
				if cleaned.Swap(now) != now {
					_ = s.base.Delete(r.ctx, r.queue, r.joined.Place, driver.Changed)
				}
				r.err = errReset
			})
		}},
	{"learns of its end late; seen in locks", "see rule 8", endsLate},
}
