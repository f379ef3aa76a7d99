package entry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// View is what a waiting entry saw when it last listed the queue.
type View struct {
	First    string    // the first node in the queue
	Behind   string    // the node that blocks the entry
	Position int       // position of the entry's node, from 1
	Seen     time.Time // when the queue was listed
}

// Call is notified of the progress of a waiting entry.
type Call interface {
	// Answered is called each time the store has listed the queue, with the
	// nodes ahead, or with none if the list lacks the entry's own node.
	Answered(ahead []driver.Node)
	// Waits is called each time before the entry blocks.
	Waits(ctx context.Context, node string, v View)
	// Pause is called after a temporary error. It sleeps, or returns an error
	// to end the call.
	Pause(ctx context.Context, err error) error
}

type waiter struct {
	*Entry
	call Call
	seen sight
	idle int // consecutive wake-ups without a change
}

// sight identifies the state of the queue that a waiter last saw. A wake-up
// that finds the same state was spurious.
type sight struct {
	behind   string // the node that blocks the entry
	position int
	list     list // zero unless the whole queue is watched
}

// list summarizes a list of the queue, to notice changes without keeping it.
type list struct {
	length int
	last   driver.Node
}

// Blocked reports whether a node blocks the entry, without waiting.
func (e *Entry) Blocked(ctx context.Context) (bool, error) {
	if ctx.Err() != nil {
		return false, ErrCallOver
	}
	ahead, err := e.ahead(ctx)
	return err == nil && len(e.spec.Rule(ahead)) > 0, err
}

// Wait blocks until the entry may be granted. It returns [ErrVanished] if the
// entry's node is gone, [ErrCallOver] if ctx ends, and the session's error if
// the session ends. After a temporary error it calls call.Pause and continues,
// keeping its position, unless Pause returns an error.
func (e *Entry) Wait(ctx context.Context, call Call) error {
	w := waiter{Entry: e, call: call}
	for {
		granted, err := w.step(ctx)
		switch {
		case granted:
			return nil
		case err == nil:
		case errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil && e.session.Err() == nil:
			if err := call.Pause(ctx, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// step lists the queue once and, if the entry is blocked, waits for one change.
func (w *waiter) step(ctx context.Context) (granted bool, err error) {
	if ctx.Err() != nil {
		return false, ErrCallOver
	}
	watch, err := w.watchQueue(ctx)
	if err != nil {
		return false, err
	}
	// After a grant the watch stays open for watchNode.
	defer func() {
		if !granted {
			watch.Stop()
		}
	}()
	ahead, err := w.ahead(ctx)
	if err == nil || errors.Is(err, ErrVanished) {
		w.call.Answered(ahead)
	}
	if err != nil {
		return false, err
	}
	blocking := w.spec.Rule(ahead)
	if len(blocking) == 0 {
		watch.Stop()
		return true, nil
	}
	w.see(ctx, View{ahead[0].Name, blocking[len(blocking)-1].Name, len(ahead) + 1, time.Now()})
	if w.queue.WaitPolicy.Kind != Poll {
		Throttle(w.idle, ctx.Done())
	}
	if w.queue.WaitPolicy.Kind == WatchPredecessor {
		if watch, err = w.watchAhead(ctx, blocking); err != nil {
			return false, err
		}
	}
	return w.awaitChange(ctx, watch, len(blocking) == 1)
}

// watchQueue arms a watch if the wait policy is WatchQueue. The queue must be
// listed afterwards, so that no change is missed.
func (w *waiter) watchQueue(ctx context.Context) (driver.Watch, error) {
	if w.queue.WaitPolicy.Kind != WatchQueue {
		return driver.Watch{}, nil
	}
	w.first.Known = false // Create's list is older than the watch
	return w.session.WatchQueue(ctx, w.queue.Name)
}

// ahead returns the nodes ahead of the entry. The first call uses those that
// Create returned, if any, and later calls list the queue.
func (e *Entry) ahead(ctx context.Context) ([]driver.Node, error) {
	if e.first.Known {
		nodes := e.first.Ahead
		e.first.Known, e.first.Ahead = false, nil // free the list, which may be long
		return nodes, nil
	}
	nodes, err := e.session.List(ctx, e.queue.Name)
	if err != nil {
		return nil, err
	}
	if n := len(nodes); n > 0 {
		e.listed = list{n, nodes[n-1]}
	}
	i := Index(nodes, e.place.Node)
	if i < 0 {
		return nil, ErrVanished
	}
	e.followed = i < len(nodes)-1
	return nodes[:i], nil
}

// Ahead returns the nodes ahead of an entry for which Wait has not been called
// yet. It sends a request only if Create has not returned the nodes. It keeps
// the nodes, so that the first step of Wait needs no request.
func (e *Entry) Ahead(ctx context.Context) ([]driver.Node, error) {
	nodes, err := e.ahead(ctx)
	if err == nil {
		e.first.Known, e.first.Ahead = true, nodes
	}
	return nodes, err
}

// Index returns the position of a node in a queue, or -1. It compares epochs,
// too, because names repeat after a queue is removed and recreated.
func Index(nodes []driver.Node, n driver.Node) int {
	return slices.IndexFunc(nodes, func(m driver.Node) bool {
		return m.Name == n.Name && m.Epoch == n.Epoch
	})
}

// watchAhead returns a watch of the entry's own node and the blocking nodes.
// The first call returns the watch that Create armed, if any.
func (w *waiter) watchAhead(ctx context.Context, blocking []driver.Node) (driver.Watch, error) {
	if first := w.first.Watch; first.C != nil {
		w.first.Watch = driver.Watch{}
		return first, nil
	}
	if ctx.Err() != nil {
		return driver.Watch{}, ErrCallOver
	}
	return w.session.Watch(ctx, w.queue.Name, w.Place(), slices.Clone(blocking)...) // cloned, to free the rest of the list
}

// Throttle slows down a loop whose watches have ended n times in a row without
// a change, to avoid flooding the store.
func Throttle(n int, stop <-chan struct{}) {
	if n > 2 {
		Sleep(time.Millisecond<<min(n-2, 7), stop)
	}
}

// awaitChange waits for a reason to list the queue again. It returns true if
// the release has already granted the entry.
func (w *waiter) awaitChange(ctx context.Context, watch driver.Watch, single bool) (granted bool, err error) {
	poll, stop := w.pollTimer()
	defer stop()
	select {
	case cause, open := <-watch.C:
		if single && open && cause == driver.Released && passes(watch) {
			w.keepWatch(watch)
			w.followed = true // assume so, since the queue was not listed
			return true, nil
		}
		return false, nil
	case <-poll:
		return false, nil
	case <-w.session.Done():
		return false, w.session.Err()
	case <-ctx.Done():
		return false, ErrCallOver
	case <-w.session.client.Draining:
		return false, errClosing
	}
}

// passes reports whether a Released notice grants the entry, so that the queue
// need not be listed again. It does unless the watch has ended since, for three
// reasons:
//
//   - The blocking node was first in the queue and held exclusively:
//     removalCause allows Released only for such nodes.
//   - The entry's own node existed when that node was deleted (rule 13 of
//     package driver), and still exists, or the watch would have ended.
//   - The deleted node is the one that was listed. Names do not repeat within a
//     queue, and the entry's node keeps the queue from being recreated.
func passes(watch driver.Watch) bool {
	select {
	case <-watch.C:
		return false
	default:
		return true
	}
}

func (e *Entry) keepWatch(w driver.Watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watching.kept = w
}

// pollTimer returns a nil channel, which never fires, unless the waiter polls.
func (w *waiter) pollTimer() (c <-chan time.Time, stop func() bool) {
	if w.queue.WaitPolicy.Kind != Poll {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(w.queue.WaitPolicy.NextPoll())
	return t.C, t.Stop
}

func (w *waiter) see(ctx context.Context, v View) {
	now := sight{behind: v.Behind, position: v.Position}
	if w.queue.WaitPolicy.Kind == WatchQueue {
		now.list = w.listed
	}
	if w.idle++; now != w.seen {
		w.idle = 0
	}
	w.seen = now
	w.call.Waits(ctx, w.place.Name, v)
}
