package sqlite

import (
	"context"
	"sync"
)

// writers queues this process's write transactions on one file. SQLite only
// retries after pauses, so a heartbeat among many sessions could time out.
//
// Ordinary transactions hold outer and inner, heartbeats only inner. A
// heartbeat therefore waits for at most one ordinary transaction.
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

// queues holds the writers of each file. Entries are small and never removed.
var queues struct {
	sync.Mutex
	of map[string]*writers
}

// writersOf returns the writers of a file. Separate queues for two paths only
// cost performance.
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

// enter waits until the transaction may begin. The caller must call leave.
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

func take(ctx context.Context, place chan struct{}) (leave func(), err error) {
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
