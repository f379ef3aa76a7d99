package recipes

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// Observe yields the lock's holders and waiters in queue order, at once and
// after each change of the queue. Changes in quick succession may be yielded as
// one. When the client has a new session, a store with several servers may
// first show an outdated queue.
//
// Errors are yielded as by [Election.Observe]. An outage yields one error,
// after which the caller may continue the loop. Any other error ends it.
//
// Each change costs every observer two requests, however long the queue is:
// fields of a Contender for which its node must be read are empty. [RWMutex.Queue]
// reads them.
func (m *RWMutex) Observe(ctx context.Context) iter.Seq2[[]Contender, error] {
	return func(yield func([]Contender, error) bool) {
		if err := m.queue.usable(ctx); err != nil {
			yield(nil, err)
			return
		}
		o := queueObserver{observing: newObserving(m.queue)}
		for o.next(ctx, yield) {
		}
	}
}

// queueObserver is the state of one call of RWMutex.Observe.
type queueObserver struct {
	observing
	seen []driver.Node // the queue that was yielded last
}

// next yields the queue if it has changed, and waits for the next change. It
// returns false when Observe has to end.
func (o *queueObserver) next(ctx context.Context, yield func([]Contender, error) bool) (more bool) {
	var nodes []driver.Node
	var contenders []Contender
	var watch driver.Watch
	err := o.ask(ctx, func(s *session) (err error) {
		watch, nodes, err = s.WatchAndList(ctx, o.name)
		contenders = listed(nodes, s.heldSince(o.name))
		return err
	})
	defer watch.Stop()
	if err != nil {
		return o.failed(ctx, err, func(err error) bool { return yield(nil, err) })
	}
	o.down = false
	if changed := !slices.Equal(nodes, o.seen); o.answered(changed) {
		o.seen = nodes
		if !yield(contenders, nil) {
			return false
		}
	}
	o.await(ctx, watch)
	return true
}

// observing is the state of a loop that observes a queue across sessions.
type observing struct {
	*queue
	pause entry.Retries
	known bool // whether something was yielded, and no error since
	down  bool // whether the error of this outage was yielded
	idle  int  // consecutive wake-ups without a change
}

func newObserving(q *queue) observing {
	return observing{queue: q, pause: entry.Retries{New: q.options.backOff}}
}

// answered records that the store has answered, and reports whether the loop
// must yield the answer.
func (o *observing) answered(changed bool) bool {
	o.pause.Succeeded()
	o.idle++
	if o.known && !changed {
		return false
	}
	o.known, o.idle = true, 0
	return true
}

// await blocks until the watch ends or the loop has to end.
func (o *observing) await(ctx context.Context, watch driver.Watch) {
	entry.Throttle(o.idle, ctx.Done())
	select {
	case <-watch.C:
	case <-ctx.Done():
	case <-o.client.draining:
	}
}

// failed yields the first error of an outage and pauses. It returns false if the
// error is permanent.
func (o *observing) failed(ctx context.Context, err error, yield func(err error) bool) (more bool) {
	o.known = false
	if ctx.Err() != nil || !errors.Is(err, driver.ErrUnavailable) {
		yield(err)
		return false
	}
	if !o.down && !yield(err) {
		return false
	}
	o.down = true
	o.client.sleep(ctx, o.pause.NextEndless())
	return true
}

// Wanted returns a channel that closes when this lock makes a contender wait,
// so that a long job can give way at a good moment:
//
//	select {
//	case <-lock.Wanted():
//		return lock.Unlock() // and lock again later, behind the waiter
//	default:
//	}
//
// It closes for a waiter of any client, and stays closed if the waiter gives up.
// It never closes after Unlock or a loss. Locks of a re-entry share the channel.
//
// The first call makes the client watch and list the queue in the background,
// and again after each change of the queue, until somebody waits, the hold ends or
// [Client.Shutdown] begins. It goes on after outages, as [RWMutex.Observe] does.
// The channel usually closes soon after the waiter has joined, but there is no
// guarantee how soon.
func (l *Lock) Wanted() <-chan struct{} {
	if l.fromNoCall() {
		return nil
	}
	h := l.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted.c == nil {
		h.wanted.c = make(chan struct{})
		if h.loss == nil && len(h.locks) > 0 {
			ctx, cancel := context.WithCancel(context.Background())
			h.wanted.cancel = cancel
			h.queue.client.spawn(func() { h.awaitWanted(ctx) })
		}
	}
	return h.wanted.c
}

// wanted holds a hold's state for Lock.Wanted. It is guarded by hold.mu.
type wanted struct {
	c      chan struct{} // nil until the first call
	closed bool
	cancel context.CancelFunc // ends awaitWanted; nil before it begins
}

// stop makes sure that the channel does not close any more.
func (w *wanted) stop() {
	if w.cancel != nil {
		w.cancel()
	}
	w.closed = true
}

// tellWanted closes the channel of Wanted, if there is one.
func (h *hold) tellWanted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted.c != nil && !h.wanted.closed {
		close(h.wanted.c)
		h.wanted.stop()
	}
}

// awaitWanted observes the queue until a contender waits for the hold.
func (h *hold) awaitWanted(ctx context.Context) {
	o := queueObserver{observing: newObserving(h.queue)}
	for o.next(ctx, func([]Contender, error) bool { return !h.blocks(o.seen) }) {
	}
	if h.blocks(o.seen) {
		h.tellWanted()
	}
}

// blocks reports whether a node waits behind the hold's own node. It finds its
// own node by the sequence, because a rename may be in progress.
func (h *hold) blocks(nodes []driver.Node) bool {
	p := h.entry.Place()
	own := slices.IndexFunc(nodes, func(n driver.Node) bool { return n.Seq == p.Seq && n.Epoch == p.Epoch })
	if own < 0 {
		return false
	}
	var alone, ahead tally
	alone.add(nodes[own])
	for i, n := range nodes {
		w := wantOf(n)
		bothUnits := w.units.of > 0 && h.want.units.of > 0
		if i > own && (bothUnits || !w.holds(alone)) && !w.holds(ahead) {
			return true
		}
		ahead.add(n)
	}
	return false
}
