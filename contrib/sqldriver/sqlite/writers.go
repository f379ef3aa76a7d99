package sqlite

import (
	"context"
	"sync"
)

// writers is the queue of the sessions of this process that write to one file. SQLite
// has no queue: connections that find the file locked try again after a while. So
// without writers many sessions would disturb each other, and a heartbeat might find
// the file locked for longer than its session lives.
//
// A transaction takes the place inner. An ordinary transaction takes the place outer
// before that, and leaves it after that. A channel serves its senders in order. So a
// heartbeat waits for at most one ordinary transaction.
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

// writersOf returns the queue of a file. Two paths of one file have two queues. Then
// their sessions only disturb each other.
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

// enter waits for its turn until ctx ends. The caller calls leave at the end of its
// turn.
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

// take puts an element into a place for one.
func take(ctx context.Context, place chan struct{}) (leave func(), err error) {
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
