package dlocktest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var createSabotages = []sabotage{
	{"leaves the node of a create that was cancelled", "checking ctx after the request, and returning its error although the node was made",
		on(faults.OpCreate, func(r *request, send func()) {
			ctx := r.ctx
			r.ctx = context.WithoutCancel(ctx)
			send()
			time.Sleep(100 * time.Microsecond) // simulates the latency of the reply
			if ctx.Err() != nil {
				r.err = ctx.Err()
			}
		})},
	{"removes nodes of other contenders in its clean-up", "removing every node with its own host name",
		on(faults.OpCreate, func(r *request, send func()) {
			if send(); errors.Is(r.err, driver.ErrUnavailable) {
				nodes, _ := r.s.List(r.ctx, r.queue)
				for _, n := range withPrefix(nodes, r.spec.Prefix) {
					r.s.store.Faults().RemoveNode(r.queue, n.Name)
				}
			}
		})},
	{"leaves its node when the reply is lost", "returning the connection's error as it is", losesCreates(leavesIt)},
	{"creates once more when the reply is lost", "a client library that repeats requests by itself",
		losesCreates(func(_ *request, send func()) { send() })},
	{"takes any node of its prefix for its own when the reply is lost", "looking for its node by host name and kind instead of by data",
		losesCreates(func(r *request, send func()) {
			nodes, _ := r.s.List(r.ctx, r.queue)
			mine := withPrefix(nodes, r.spec.Prefix)
			if len(mine) == 0 {
				send()
				return
			}
			r.adopt(mine[len(mine)-1])
		})},
	{"takes any node with its data for its own when the reply is lost", "looking for its node by data, without a look at the owner",
		losesCreates(func(r *request, send func()) {
			nodes, _ := r.s.List(r.ctx, r.queue)
			for _, n := range nodes {
				if info, err := r.s.Read(r.ctx, r.queue, n.Name); err == nil && bytes.Equal(info.Data, r.spec.Data) {
					r.adopt(n)
					return
				}
			}
			send()
		})},
	{"returns an error from Create although only its list failed", "two requests in one method, with one error for both",
		func(s *faulty) {
			var lost atomic.Bool
			s.lose = func(op faults.Op, _ bool) bool {
				if op == faults.OpList {
					lost.Store(true)
				}
				return op == faults.OpList
			}
			s.after(faults.OpCreate, func(r *request) {
				if lost.Swap(false) {
					r.err = errReset
				}
			})
		}},
	{"leaves the node of a create that arrives late", "cleaning up once, right after the error",
		func(s *faulty) {
			s.late(faults.OpCreate, func(r *request) { _, _ = s.base.Create(context.WithoutCancel(r.ctx), r.queue, r.spec) })
		}},
	{"looks for the node of a lost create by data that the caller has overwritten", "keeping the slice instead of a copy",
		all(losesCreates(leavesIt), func(s *faulty) {
			lost := inStore[sync.Map](s) // pointers to the data of each lost Create
			s.on(faults.OpCreate, func(r *request, send func()) {
				if send(); errors.Is(r.err, errReset) {
					lost.Store(&r.spec.Data, true)
				}
			})
			s.after(faults.OpList, func(r *request) {
				r.nodes = slices.DeleteFunc(r.nodes, func(n driver.Node) (found bool) {
					info, _ := s.Read(r.ctx, r.queue, n.Name)
					lost.Range(func(kept, _ any) bool {
						found = found || bytes.Equal(info.Data, *kept.(*[]byte))
						return !found
					})
					return found
				})
			})
		})},
	{"creates nodes for a session that the store has ended", "Redis, SQL: no look at the session in the request that makes the node",
		func(s *faulty) {
			var expired atomic.Bool
			s.expiring = func() { expired.Store(true) }
			s.on(faults.OpCreate, func(r *request, send func()) {
				if send(); r.err != nil && expired.Load() {
					_ = s.store.Faults().PutNode(r.queue, driver.FormatName(r.spec.Prefix, 1000), r.spec.Data)
				}
			})
		}},
}

// losesCreates loses a Create when a test asks for it; after handles the loss
// wrongly.
func losesCreates(after handler) plant {
	return func(s *faulty) {
		losses := make(chan bool, 10)
		s.lose = func(op faults.Op, committed bool) bool {
			if op == faults.OpCreate {
				losses <- committed
			}
			return op == faults.OpCreate
		}
		s.on(faults.OpCreate, func(r *request, send func()) {
			select {
			case committed := <-losses:
				if committed {
					send()
				}
				after(r, send)
			default:
				send()
			}
		})
	}
}

func leavesIt(r *request, _ func()) { r.err = errReset }

func (r *request) adopt(n driver.Node) {
	info, err := r.s.Read(r.ctx, r.queue, n.Name)
	r.joined, r.watch, r.err = driver.Joined{Place: driver.Place{Node: n, Token: info.Token}}, driver.Watch{}, err
}
