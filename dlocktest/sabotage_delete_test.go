package dlocktest

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var deleteSabotages = []sabotage{
	{"deletes by name", "a store where names come again, and a request that contains the name only",
		on(faults.OpDelete, func(r *request, _ func()) {
			if r.err = cmp.Or(driver.CheckQueue(r.queue), r.s.Err()); r.err == nil {
				r.err = gone(r.s.store.Faults().RemoveNode(r.queue, r.place.Name))
			}
		})},
	{"returns success for a node that is gone", "Redis, SQL: DEL and DELETE succeed for a missing node, and the number of removed nodes is ignored",
		confuses(faults.OpDelete, driver.ErrGone, nil)},
	{"returns the error of its store for a node that is gone", "SQL: no rows; Redis: nil",
		confuses(faults.OpDelete, driver.ErrGone, errPlain("no rows in result set"))},
	{"deletes the head of the queue", "Redis: ZPOPMIN, because the holder is the oldest",
		on(faults.OpDelete, func(r *request, send func()) {
			nodes, err := r.s.List(r.ctx, r.queue)
			switch {
			case err != nil:
				r.err = err
			case slices.Contains(nodes, r.place.Node):
				r.s.store.Faults().RemoveNode(r.queue, nodes[0].Name)
			default:
				send()
			}
		})},
	{"deletes in the background", "a pipeline whose answers are not read",
		on(faults.OpDelete, func(r *request, send func()) {
			if _, err := r.s.Read(r.ctx, r.queue, r.place.Name); err != nil {
				send()
				return
			}
			go func() { _ = r.s.base.Delete(context.WithoutCancel(r.ctx), r.queue, r.place, r.why) }()
		})},
	{"takes its own delete for the delete of another client", "a client library that repeats a request whose reply was lost",
		func(s *faulty) {
			var lost atomic.Bool
			s.lose = func(op faults.Op, committed bool) bool {
				mine := op == faults.OpDelete && committed
				if mine {
					lost.Store(true)
				}
				return mine
			}
			s.on(faults.OpDelete, func(r *request, send func()) {
				if lost.Swap(false) {
					send()
				}
				send()
			})
		}},
	{"deletes by name if the request comes late", "a network that delays, and a request that contains the path only",
		func(s *faulty) {
			s.late(faults.OpDelete, func(r *request) { s.store.Faults().RemoveNode(r.queue, r.place.Name) })
		}},
	{"never returns from Delete", "waiting for an answer without a limit",
		on(faults.OpDelete, func(*request, func()) { select {} })},
}

func gone(removed bool) error {
	if removed {
		return nil
	}
	return driver.ErrGone
}
