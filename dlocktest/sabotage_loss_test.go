package dlocktest

import (
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var lossSabotages = []sabotage{
	{"keeps its sessions when the data are lost", "Redis: no request compares the data with the server that holds them",
		func(s *faulty) { s.losing = func(*time.Duration) bool { return true } }},
	{"waits for less than a lease after a loss", "a grace that a change of the clock ends",
		func(s *faulty) {
			s.losing = func(grace *time.Duration) bool {
				*grace = soundTimeout / 8
				return false
			}
		}},
	{"restores the nodes of lost sessions", "a backup of all tables, and no clean-up",
		func(s *faulty) {
			nodes := s.places()
			s.restored = func() {
				nodes.each(func(queue string, p driver.Place) { _ = s.store.Faults().PutNode(queue, p.Name, nil) })
			}
		}},
	{"counts tokens anew after a loss", "a sequence that is lost with the data",
		func(s *faulty) {
			count := inStore[atomic.Int64](s)
			renumber(func(*request) int64 { return count.Add(1) })(s)
			s.restored = func() { count.Store(0) }
		}},
}
