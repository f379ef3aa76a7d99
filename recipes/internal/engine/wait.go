package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// View is what a waiting entry saw when it last looked at the queue.
type View struct {
	First    string    // the name of the first node in the queue
	Behind   string    // the name of the node that blocks the entry
	Position int       // the position of the entry's own node, from 1
	Seen     time.Time // when the entry looked at the queue
}

// Call is the call for which an entry waits.
type Call interface {
	// Answered is called when the store has answered.
	Answered()
	// Waits is called each time before the entry begins to wait.
	Waits(ctx context.Context, node string, v View)
	// Pause is called after an error that may pass. It waits, and returns an
	// error if the call is to end.
	Pause(ctx context.Context, err error) error
	// Interrupt returns a channel that closes if Wait has to return
	// ErrInterrupted. The node then stays in the queue. Nil: it never has to.
	Interrupt() <-chan struct{}
}

// waiter is an entry during Wait.
type waiter struct {
	*Entry
	call Call
	seen sight
	idle int // how many wake-ups in a row have shown the same sight
}

// sight is what has to change before waking an entry makes sense.
type sight struct {
	behind string // the node that blocks the entry
	list   list   // zero unless the entry watches the whole queue
}

// list tells one list of a queue from the next.
type list struct {
	length int
	last   driver.Node
}

// Blocked looks at the queue once and reports whether a node blocks the entry.
func (e *Entry) Blocked(ctx context.Context) (bool, error) {
	if ctx.Err() != nil {
		return false, ErrCallOver
	}
	ahead, err := e.ahead(ctx)
	return err == nil && len(e.spec.Rule(ahead)) > 0, err
}

// Wait returns nil once no node blocks the entry. It returns [ErrVanished] if
// the own node is not in the queue, [ErrCallOver] if ctx has ended, and the
// session's error if the session has ended. After an error that may pass it
// calls call.Pause and goes on, unless Pause returns an error. The entry keeps
// its position meanwhile.
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

// step looks at the queue once and, if a node blocks the entry, waits once.
func (w *waiter) step(ctx context.Context) (granted bool, err error) {
	if ctx.Err() != nil {
		return false, ErrCallOver
	}
	watch, err := w.watchQueue(ctx)
	if err != nil {
		return false, err
	}
	// If awaitChange reports a grant, the watch stays open, because watchNode then
	// uses it to watch the own node. In all other cases no watch stays open.
	defer func() {
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
	blocking := w.spec.Rule(ahead)
	if len(blocking) == 0 {
		watch.Stop()
		return true, nil
	}
	w.see(ctx, View{ahead[0].Name, blocking[len(blocking)-1].Name, len(ahead) + 1, time.Now()})
	if w.queue.Wait.Kind != Poll {
		throttle(w.idle, ctx.Done())
	}
	if w.queue.Wait.Kind == WatchPredecessor {
		if watch, err = w.watchAhead(ctx, blocking); err != nil {
			return false, err
		}
	}
	return w.awaitChange(ctx, watch, len(blocking) == 1)
}

// watchQueue watches the whole queue, if that is the way of waiting. The caller
// lists the queue after it: otherwise a change in between would be missed.
func (w *waiter) watchQueue(ctx context.Context) (driver.Watch, error) {
	if w.queue.Wait.Kind != WatchQueue {
		return driver.Watch{}, nil
	}
	w.first.Known = false // its list is older than the watch
	return w.session.WatchQueue(ctx, w.queue.Name)
}

// ahead returns the nodes before the own one: those that Create has returned
// the first time, and then those of a new list.
func (e *Entry) ahead(ctx context.Context) ([]driver.Node, error) {
	if e.first.Known {
		nodes := e.first.Ahead
		e.first.Known, e.first.Ahead = false, nil // frees the list, which may be long
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
	return nodes[:i], nil
}

// Index returns the position of a node in a queue, or -1. The name alone does
// not tell nodes of a queue that was removed and made again apart.
func Index(nodes []driver.Node, n driver.Node) int {
	return slices.IndexFunc(nodes, func(m driver.Node) bool {
		return m.Name == n.Name && m.Epoch == n.Epoch
	})
}

// watchAhead returns a watch of the own node and of the nodes to wait for. The
// first call returns the watch that Create has armed, if there is one.
func (w *waiter) watchAhead(ctx context.Context, blocking []driver.Node) (driver.Watch, error) {
	if first := w.first.Watch; first.C != nil {
		w.first.Watch = driver.Watch{}
		return first, nil
	}
	if ctx.Err() != nil {
		return driver.Watch{}, ErrCallOver
	}
	return w.session.Watch(ctx, w.queue.Name, w.Place(), slices.Clone(blocking)...) // a driver may keep them, and must not keep the list
}

// throttle pauses a loop whose watches have ended n times in a row without a
// reason, which would otherwise send requests in quick succession. The first two
// times there is no pause.
func throttle(n int, stop <-chan struct{}) {
	if n > 2 {
		Sleep(time.Millisecond<<min(n-2, 7), stop)
	}
}

// awaitChange waits for a reason to look at the queue again. It returns true if
// the entry may be granted without another look, and then leaves the watch to
// watchNode, because it goes on for the own node alone. single says that one node
// blocks the entry, so that the release of that node unblocks it.
func (w *waiter) awaitChange(ctx context.Context, watch driver.Watch, single bool) (granted bool, err error) {
	poll, stop := w.pollTimer()
	defer stop()
	select {
	case cause, open := <-watch.C:
		if single && open && cause == driver.Released && passes(watch) {
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
	case <-w.call.Interrupt():
		return false, ErrInterrupted
	case <-w.session.client.Closed:
		return false, errClosing
	}
}

// passes is called after a watch has sent Released. It returns true if the watch
// has not ended since. Then the entry may be granted without another look at the
// queue, for three reasons:
//
//   - The node that blocked the entry was the first of the queue, and no other
//     entry was granted beside it. A driver sends Released only for a Delete with
//     the cause Released, and removalCause gives that cause only to such a node.
//   - The own node existed when that node was deleted: rule 13 of package driver.
//     It still exists as far as this client can know. The watch goes on for the
//     own node, and would have ended if the own node were gone.
//   - The deleted node is the one that was listed. As long as the own node exists,
//     the queue is not removed and made again, and within one queue names do not
//     repeat.
func passes(watch driver.Watch) bool {
	select {
	case <-watch.C:
		return false
	default:
		return true
	}
}

// keepWatch stores the watch of the wait for watchNode.
func (e *Entry) keepWatch(w driver.Watch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watching.kept = w
}

// pollTimer returns a nil channel if the entry does not poll.
func (w *waiter) pollTimer() (c <-chan time.Time, stop func() bool) {
	if w.queue.Wait.Kind != Poll {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(w.queue.Wait.NextPoll())
	return t.C, t.Stop
}

func (w *waiter) see(ctx context.Context, v View) {
	now := sight{behind: v.Behind}
	if w.queue.Wait.Kind == WatchQueue {
		now.list = w.listed
	}
	if w.idle++; now != w.seen {
		w.idle = 0
	}
	w.seen = now
	w.call.Waits(ctx, w.place.Name, v)
}
