package sqlite

import (
	"context"
	"sync"
)

// writers queues this process's write transactions on one file. SQLite has no
// such queue, only retries after pauses, so that with many sessions a heartbeat
// might find the file locked until its session times out.
//
// Each channel has room for one transaction and serves senders in order. All
// transactions enter inner. Ordinary ones enter outer first and leave it last,
// so that a heartbeat waits for at most one of them.
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

// writersOf returns the writers of the file at path. Two paths to the same file
// get separate queues, which affects performance only.
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
