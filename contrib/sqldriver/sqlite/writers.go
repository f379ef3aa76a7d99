package sqlite

import (
	"context"
	"sync"
)

// writers is the queue of the sessions of this process that write to one file. SQLite
// itself has no such queue: a connection that finds the file locked tries again after a
// while. So without writers many sessions would disturb each other, and a heartbeat
// might find the file locked until its session has timed out.
//
// The channels inner and outer have room for one transaction each. Every transaction
// has to enter inner. An ordinary transaction has to enter outer first, and leaves
// outer last. So at most one ordinary transaction at a time is in inner or waits for
// it, and a heartbeat waits for at most one ordinary transaction: a channel serves its
// senders in order.
type writers struct{ outer, inner chan struct{} }

// urgency tells heartbeats from the other transactions.
type urgency int

const (
	ordinary urgency = iota
	urgent
)

func newWriters() *writers {
	return &writers{outer: make(chan struct{}, 1), inner: make(chan struct{}, 1)}
}

// queues has the writers of each file that this process has opened. A few bytes for
// each path stay until the process ends.
var queues struct {
	sync.Mutex
	of map[string]*writers
}

// writersOf returns the queue of the file with this path. If two paths lead to the same
// file, they have two queues. The locks stay correct, but the sessions of one path then
// disturb those of the other.
func writersOf(path string) *writers {
	queues.Lock()
	defer queues.Unlock()
	if queues.of == nil {
		queues.of = make(map[string]*writers)
	}
	if queues.of[path] == nil {
		queues.of[path] = newWriters()
	}
	return queues.of[path]
}

// enter waits until the transaction may begin, or until ctx ends. The caller calls
// leave after its transaction.
func (w *writers) enter(ctx context.Context, u urgency) (leave func(), err error) {
	if u == urgent {
		return take(ctx, w.inner)
	}
	leaveOuter, err := take(ctx, w.outer)
	if err != nil {
		return nil, err
	}
	leaveInner, err := take(ctx, w.inner)
	if err != nil {
		leaveOuter()
		return nil, err
	}
	return func() { leaveInner(); leaveOuter() }, nil
}

// take waits until the channel place, which has room for one element, is empty, and
// puts an element into it. The function leave removes the element.
func take(ctx context.Context, place chan struct{}) (leave func(), err error) {
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
