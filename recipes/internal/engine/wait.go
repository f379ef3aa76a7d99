package engine

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// View is what a waiting entry has seen when it looked at the queue.
type View struct {
	First    string // the first node
	Behind   string // the node that blocks the entry
	Position int    // of the own node, from 1
	Seen     time.Time
}

// Call is the call on whose behalf an entry waits.
type Call interface {
	// Answered is called when the store has answered.
	Answered()
	// Waits is called each time before the entry waits.
	Waits(ctx context.Context, node string, v View)
	// Pause is called after an error that may pass. It waits, and returns an
	// error if the call is to end.
	Pause(ctx context.Context, err error) error
}

// waiter is an entry in Wait.
type waiter struct {
	*Entry
	call   Call
	behind string
	idle   int // wake-ups in a row after which the same node blocked
}

// Blocked looks at the queue once and reports whether a node blocks the entry.
func (e *Entry) Blocked(ctx context.Context) (bool, error) {
	if ctx.Err() != nil {
		return false, ErrCallOver
	}
	ahead, err := e.ahead(ctx)
	return err == nil && e.spec.Blocks(ahead) >= 0, err
}

// Wait returns nil once no node blocks the entry, so that it may be granted. It
// returns [ErrVanished] if the own node is not in the queue, [ErrCallOver] if
// ctx has ended, an error of the session when that ends, and else what
// call.Pause returns. An error that may pass does not cost the position in the
// queue.
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

// step looks at the queue once and, if a node blocks the entry, waits once. It
// reports whether no node blocks the entry any more.
func (w *waiter) step(ctx context.Context) (granted bool, err error) {
	if ctx.Err() != nil {
		return false, ErrCallOver
	}
	watch, err := w.watchQueue(ctx)
	if err != nil {
		return false, err
	}
	defer func() { // the watch that a grant leaves goes on for the own node
		if !granted {
			watch.Stop()
		}
	}()
	ahead, err := w.ahead(ctx)
	if err == nil || errors.Is(err, ErrVanished) {
		w.call.Answered()
	}
	if err != nil {
		return false, err
	}
	b := w.spec.Blocks(ahead)
	if b < 0 {
		watch.Stop()
		return true, nil
	}
	w.see(ctx, View{ahead[0].Name, ahead[b].Name, len(ahead) + 1, time.Now()})
	if w.queue.Wait.Kind == WatchPredecessor {
		if watch, err = w.watchPredecessor(ctx, ahead[b]); err != nil {
			return false, err
		}
	}
	return w.sleep(ctx, watch)
}

// watchQueue watches the whole queue, if that is the way of waiting. The watch
// has to be armed before the queue is listed.
func (w *waiter) watchQueue(ctx context.Context) (driver.Watch, error) {
	if w.queue.Wait.Kind != WatchQueue {
		return driver.Watch{}, nil
	}
	w.first.Known = false // its list is older than the watch
	return w.session.WatchQueue(ctx, w.queue.Name)
}

// ahead returns the nodes before the own one: once those that Create has
// returned, and else those that the store lists now.
func (e *Entry) ahead(ctx context.Context) ([]driver.Node, error) {
	if e.first.Known {
		nodes := e.first.Ahead
		e.first.Known, e.first.Ahead = false, nil // a long list is not kept
		return nodes, nil
	}
	nodes, err := e.session.List(ctx, e.queue.Name)
	if err != nil {
		return nil, err
	}
	i := Index(nodes, e.place.Node)
	if i < 0 {
		return nil, ErrVanished
	}
	return nodes[:i], nil
}

// watchPredecessor watches the own node and the one that blocks it.
func (w *waiter) watchPredecessor(ctx context.Context, n driver.Node) (driver.Watch, error) {
	if first := w.first.Watch; first.C != nil {
		w.first.Watch = driver.Watch{}
		return first, nil
	}
	w.slowDown(ctx)
	if ctx.Err() != nil {
		return driver.Watch{}, ErrCallOver
	}
	return w.armWatch(ctx, n)
}

// slowDown spaces out the requests of an entry whose driver ends watches early,
// again and again. Once or twice is nothing unusual.
func (w *waiter) slowDown(ctx context.Context) {
	if w.idle > 2 {
		Sleep(time.Millisecond<<min(w.idle-2, 7), ctx.Done())
	}
}

// sleep waits for a reason to look at the queue again. It reports whether the
// entry may be granted without another look. The watch then is that of the own
// node, and the entry keeps it.
func (w *waiter) sleep(ctx context.Context, watch driver.Watch) (granted bool, err error) {
	poll, stop := w.pollTimer()
	defer stop()
	select {
	case cause, open := <-watch.C:
		if open && cause == driver.Released && passes(watch) {
			w.keepWatch(watch)
			return true, nil
		}
		return false, nil
	case <-poll:
		return false, nil
	case <-w.session.Done():
		return false, w.session.Err()
	case <-ctx.Done():
		return false, ErrCallOver
	case <-w.session.client.Closed:
		return false, errClosing
	}
}

// passes reports whether a watch that has sent Released lets its entry be
// granted without another look at the queue:
//
//   - The owner of the node that blocked has released it. So that node was the first
//     of the queue, and no other entry was granted beside it. A driver sends Released
//     for nothing else. An owner that renames its node keeps the position, and a
//     waiter that gives up may have had other nodes before its own.
//   - The own node stood at that time: rule 13. The watch goes on for it. So if the
//     node has gone since, and that can be seen by now, the watch has ended.
//
// The own node stood, so the queue is the one that was listed, and the released
// node is the one that was listed: as long as the queue stands, no name comes
// again in it.
func passes(watch driver.Watch) bool {
	select {
	case <-watch.C:
		return false
	default:
		return true
	}
}

// pollTimer returns a channel that receives when an entry that polls has to
// look again.
func (w *waiter) pollTimer() (c <-chan time.Time, stop func() bool) {
	if w.queue.Wait.Kind != Poll {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(w.queue.Wait.Pause())
	return t.C, t.Stop
}

func (w *waiter) see(ctx context.Context, v View) {
	if w.idle++; v.Behind != w.behind {
		w.idle = 0
	}
	w.behind = v.Behind
	w.call.Waits(ctx, w.place.Name, v)
}
