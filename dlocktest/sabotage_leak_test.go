package dlocktest

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var leakSabotages = []sabotage{
	{"leaves a goroutine", "a loop without an end", func(*faulty) { go func() { select {} }() }},
	{"leaves a goroutine for each watch", "waiting for the end of the session instead of Stop",
		before(faults.OpWatch, func(r *request) { go func() { <-r.s.Done() }() })},
	{"leaves a goroutine with each call that is given up", "an answer sent to a channel that is not read any more",
		on(faults.OpList, func(r *request, _ func()) {
			answer := make(chan []driver.Node)
			go func() {
				nodes, _ := r.s.base.List(context.WithoutCancel(r.ctx), r.queue)
				answer <- nodes
			}()
			if r.err = r.ctx.Err(); r.err != nil {
				return
			}
			select {
			case r.nodes = <-answer:
				r.err = r.s.Err()
			case <-r.ctx.Done():
				r.err = r.ctx.Err()
			}
		})},
	{"makes more nodes under load than it can remove", "a time limit for each create, and one goroutine that removes the nodes of those that took longer",
		func(s *faulty) {
			var creating atomic.Int32
			var removing sync.Mutex
			s.on(faults.OpCreate, func(r *request, send func()) {
				defer creating.Add(-1)
				busy := creating.Add(1) > 1
				time.Sleep(time.Millisecond)
				if send(); r.err != nil || !busy {
					return
				}
				go func() {
					removing.Lock()
					defer removing.Unlock()
					time.Sleep(soundTimeout)
					_ = s.base.Delete(context.Background(), r.queue, r.joined.Place, driver.Changed)
				}()
				r.err = errReset
			})
		}},
	{"lets calls in flight go on after Close", "a call that waits for a connection or repeats its request, and does not look at the session",
		func(s *faulty) {
			whole := s.cuts()
			var closing atomic.Bool
			s.on(faults.OpList, func(r *request, send func()) {
				lived := s.Err() == nil
				if send(); lived && closing.Load() {
					select {
					case <-whole.healed():
					case <-r.ctx.Done():
					}
				}
			})
			s.on(faults.OpClose, func(_ *request, send func()) {
				closing.Store(true)
				send()
			})
		}},
	{"leaves its connection open", "closing the session and not the client of it",
		func(*faulty) {
			if f, err := os.Open(os.DevNull); err == nil {
				heldOpen.Store(f, true)
			}
		}},
}

// heldOpen references leaked files, so that the garbage collector does not
// close them.
var heldOpen sync.Map
