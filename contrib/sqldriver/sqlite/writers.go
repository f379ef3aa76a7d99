package sqlite

import (
	"context"
	"sync"
)

// writers queues the transactions of this process on one file. SQLite has no
// queue, just retries after pauses, so many sessions would impede each other,
// and a heartbeat might find the file locked until its session times out.
//
// Each channel has room for one transaction, and serves senders in order. All
// transactions enter inner; ordinary ones hold outer meanwhile. At most one
// ordinary transaction is thus in inner or waits for it, and a heartbeat waits
// for at most one.
type writers struct{ outer, inner chan struct{} }

// urgency distinguishes heartbeats from other transactions.
type urgency int

const (
	ordinary urgency = iota
	urgent
)

func newWriters() *writers {
	return &writers{outer: make(chan struct{}, 1), inner: make(chan struct{}, 1)}
}

// queues holds the writers of each file opened by this process. Entries, a few
// bytes each, are never removed.
var queues struct {
	sync.Mutex
	of map[string]*writers
}

// writersOf returns the queue of the file at path. Two paths to the same file
// get two queues, which affects performance only.
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

// enter waits until the transaction may begin. The caller calls leave after it.
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

// take waits for the place in a channel. The function leave frees it.
func take(ctx context.Context, place chan struct{}) (leave func(), err error) {
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
