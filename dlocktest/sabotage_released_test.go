package dlocktest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var releasedSabotages = []sabotage{
	{"sends Released for every Delete", "one request for both causes",
		before(faults.OpDelete, func(r *request) { r.why = driver.Released })},
	{"sends Released for nodes that Close removes", "one function for Unlock and Close",
		func(s *faulty) {
			nodes := s.places()
			s.on(faults.OpClose, func(_ *request, send func()) {
				if s.Err() == nil {
					s.release(nodes)
				}
				send()
			})
		}},
	{"sends Released for nodes that expire", "a trigger on deletion, or a message when a key expires, that is taken for a release",
		func(s *faulty) {
			nodes := s.places()
			s.expiring = func() { s.release(nodes) }
		}},
	{"takes the end of a watch without a message for a release", "concluding from a missing message: an operator's removal looks the same",
		func(s *faulty) {
			told := s.announces()
			s.judges(func(r *request) bool { return !told(r) })
		}},
	{"takes a missing node for a released one", "a watch that is armed after the release",
		watching(func(r *request, send func()) {
			if !there(r.s, r.queue, r.place.Name) || stand(r.s, r.queue, r.ahead...) {
				send()
				return
			}
			c := make(chan driver.Cause, 1)
			c <- driver.Released
			close(c)
			r.watch = driver.NewWatch(c, nil)
		})},
	{"remembers releases by name", "a table of names, in a store where names come again",
		func(s *faulty) {
			names := inStore[sync.Map](s)
			s.onRelease(func(r *request) { names.Store(r.queue+"/"+r.place.Name, true) })
			s.judges(func(r *request) bool {
				return slices.ContainsFunc(r.ahead, func(n driver.Node) bool {
					_, given := names.Load(r.queue + "/" + n.Name)
					return given && !there(s, r.queue, n.Name)
				})
			})
		}},
	{"sends Released for the own node", "one message for all watches of a node, also for those of its owner",
		func(s *faulty) {
			var released sync.Map
			s.onRelease(func(r *request) { released.Store(r.place, true) })
			unarmed(s)
			s.after(faults.OpWatch, func(r *request) {
				r.watch = judged(s, r.watch, func() bool {
					_, own := released.Load(r.place)
					return own
				})
			})
		}},
	{"sends Released to watches of the queue", "one message for all watches",
		func(s *faulty) {
			releases := inStore[atomic.Int64](s)
			s.onRelease(func(*request) { releases.Add(1) })
			s.on(faults.OpWatchQueue, func(r *request, send func()) {
				before := releases.Load()
				send()
				r.watch = judged(s, r.watch, func() bool { return releases.Load() != before })
			})
		}},
	{"sends Released before the end of the own node", "one subscription for each node: their messages arrive in any order",
		overtaking(func(*faulty, bool) bool { return true })},
	{"sends Released without knowing what operators removed", "Redis, SQL: no session gets a message of a removal by an operator",
		overtaking(notItself)},
	{"sends Released without knowing of its own expiry", "the store ends a session, and the process learns of it with the next heartbeat",
		overtaking(func(s *faulty, _ bool) bool { return s.Err() != nil })},
	{"forgets the own node after Released", "a subscription that ends with its first message",
		watching(func(r *request, send func()) {
			send()
			said := false
			r.watch = relay(r.watch, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
				if said = said || open; open || !said {
					pass(cause, open, out)
				}
			})
		})},
	{"sends Released for each node", "a message for each release, passed on as it comes",
		watching(func(r *request, send func()) {
			if len(r.ahead) < 2 {
				send()
				return
			}
			var mu sync.Mutex
			over := false
			out := make(chan driver.Cause, len(r.ahead))
			var stops []func()
			for _, n := range r.ahead {
				w, _ := r.s.base.Watch(r.ctx, r.queue, r.place, n)
				one := relay(w, func(cause driver.Cause, open bool, _ chan<- driver.Cause) {
					mu.Lock()
					defer mu.Unlock()
					if !over {
						over = !open
						pass(cause, open, out)
					}
				})
				stops = append(stops, one.Stop)
			}
			r.watch = driver.NewWatch(out, func() {
				for _, stop := range stops {
					stop()
				}
			})
		})},
	{"announces a release before List shows it", "Redis: PUBLISH and DEL as two commands; a list from a replica that lags",
		func(s *faulty) {
			old := inStore[sync.Map](s) // each queue's nodes before its latest release
			s.onRelease(func(r *request) {
				nodes, _ := s.base.List(r.ctx, r.queue)
				old.Store(r.queue, nodes)
				time.AfterFunc(time.Millisecond, func() { old.Delete(r.queue) })
			})
			s.on(faults.OpList, func(r *request, send func()) {
				if nodes, lags := old.Load(r.queue); lags {
					r.nodes = slices.Clone(nodes.([]driver.Node))
					return
				}
				send()
			})
		}},
}

func (s *faulty) release(nodes *places) {
	nodes.each(func(queue string, p driver.Place) { _ = s.Delete(context.Background(), queue, p, driver.Released) })
}

func (s *faulty) onRelease(f func(r *request)) {
	s.on(faults.OpDelete, func(r *request, send func()) {
		if r.why == driver.Released {
			f(r)
		}
		send()
	})
}

// judges makes watches send Released at their end if isRelease returns true.
func (s *faulty) judges(isRelease func(r *request) bool) {
	unarmed(s)
	s.after(faults.OpWatch, func(r *request) {
		r.watch = judged(s, r.watch, func() bool { return len(r.ahead) > 0 && isRelease(r) })
	})
}

// overtaking makes watches send Released after their own node is gone, if fails
// returns true.
func overtaking(fails func(s *faulty, itself bool) bool) plant {
	return watching(func(r *request, send func()) {
		if send(); r.err != nil || len(r.ahead) == 0 || !there(r.s, r.queue, r.place.Name) {
			return
		}
		said := false
		r.watch = relay(r.watch, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
			_, itself := inStore[deletions](r.s).Load(r.place)
			if said = said || open; !open && !said && !there(r.s, r.queue, r.place.Name) && fails(r.s, itself) && hearsOf(r) {
				out <- driver.Released
				time.Sleep(20 * time.Millisecond)
			}
			pass(cause, open, out)
		})
	}, func(s *faulty) {
		s.onRelease(func(r *request) { inStore[releases](s).Store(r.place.Node, true) })
		s.before(faults.OpDelete, func(r *request) { inStore[deletions](s).Store(r.place, true) })
	})
}

type (
	releases  struct{ sync.Map } // the nodes that were released
	deletions struct{ sync.Map } // the places that were deleted
)

func notItself(s *faulty, itself bool) bool { return !itself && s.Err() == nil }

func hearsOf(r *request) bool {
	for range 40 {
		if _, released := inStore[releases](r.s).Load(r.ahead[0]); released {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}
