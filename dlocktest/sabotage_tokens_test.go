package dlocktest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver/faults"
)

var tokenSabotages = []sabotage{
	{"uses the sequence as the token", "ZooKeeper: the counter of a queue is removed with the queue",
		renumber(func(r *request) int64 { return r.joined.Seq })},
	{"counts tokens in the process", "a counter in memory, which starts again with the process",
		func(s *faulty) {
			var count atomic.Int64
			renumber(func(*request) int64 { return count.Add(1) })(s)
		}},
	{"uses the time as the token", "milliseconds since 1970: two nodes may get the same one",
		renumber(func(*request) int64 { return time.Now().UnixMilli() })},
	{"draws tokens in blocks, one for each session", "SQL: a sequence with a cache for each connection",
		func(s *faulty) {
			var mu sync.Mutex
			var next, end int64
			blocks := inStore[atomic.Int64](s)
			renumber(func(*request) int64 {
				mu.Lock()
				defer mu.Unlock()
				if next == end {
					end = blocks.Add(20)
					next = end - 20
				}
				next++
				return next
			})(s)
		}},
	{"starts its count again when a queue becomes empty", "Redis and SQL: the counter is kept with the queue and removed with the last contender",
		func(s *faulty) {
			counts := inStore[sync.Map](s) // counts by queue
			renumber(func(r *request) int64 {
				count, _ := counts.LoadOrStore(r.queue, new(atomic.Int64))
				if nodes, err := s.base.List(context.WithoutCancel(r.ctx), r.queue); err == nil && len(without(nodes, r.joined.Node)) == 0 {
					count.(*atomic.Int64).Store(0)
				}
				return count.(*atomic.Int64).Add(1)
			})(s)
		}},
}

// renumber makes Create return wrong tokens. The session finds nodes by the
// right ones.
func renumber(token func(r *request) int64) plant {
	return all(unknowing, func(s *faulty) {
		var real sync.Map
		s.after(faults.OpCreate, func(r *request) {
			real.Store(sequenceOf(r.queue, r.joined.Node), r.joined.Token)
			r.joined.Token = token(r)
		})
		for _, op := range []faults.Op{faults.OpDelete, faults.OpWatch, faults.OpReplace} {
			s.on(op, func(r *request, send func()) {
				wrong := r.place.Token
				if right, ok := real.Load(sequenceOf(r.queue, r.place.Node)); ok && wrong != 0 {
					r.place.Token = right.(int64)
				}
				send()
				r.now.Token = wrong
			})
		}
	})
}
