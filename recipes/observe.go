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
// Errors are yielded as by [Election.Observe].
//
// Each change costs every observer two requests, however long the queue is.
// Observe does not read the nodes, so the fields of a Contender that need a
// read are empty; [RWMutex.Queue] fills them.
func (m *RWMutex) Observe(ctx context.Context) iter.Seq2[[]Contender, error] {
	return func(yield func([]Contender, error) bool) {
		m.queue.observe(ctx, func(_ []driver.Node, all []Contender, err error) bool { return yield(all, err) })
	}
}

func (q *queue) observe(ctx context.Context, yield func(nodes []driver.Node, all []Contender, err error) bool) {
	var nodes, seen []driver.Node
	observe(ctx, q, func(s *session) (all []Contender, watch driver.Watch, err error) {
		watch, nodes, err = s.WatchAndList(ctx, q.name)
		return listed(nodes, s.heldSince(q.name)), watch, err
	}, func([]Contender) (changed, old bool) {
		changed, seen = !slices.Equal(nodes, seen), nodes
		return changed, false
	}, func(all []Contender, err error) bool { return yield(nodes, all, err) })
}

type observing struct {
	*queue
	pause entry.Retries
	known bool // whether something was yielded, and no error since
	down  bool // whether the error of this outage was yielded
	idle  int  // consecutive wake-ups without a change
}

// observe yields the results of look, at once and after each change, even
// across sessions. It skips results that compare finds old or unchanged.
func observe[T any](ctx context.Context, q *queue, look func(*session) (T, driver.Watch, error), compare func(T) (changed, old bool), yield func(T, error) bool) {
	var none T
	if err := q.usable(ctx); err != nil {
		yield(none, err)
		return
	}
	o := observing{queue: q, pause: entry.Retries{New: q.options.backOff}}
	once := func() (more bool) {
		found, watch := none, driver.Watch{}
		err := q.ask(ctx, func(s *session) (err error) {
			found, watch, err = look(s)
			return err
		})
		defer watch.Stop()
		if err != nil {
			return o.failed(ctx, err, func(err error) bool { return yield(none, err) })
		}
		o.down = false
		changed, old := compare(found)
		if old {
			q.client.sleep(ctx, o.pause.NextEndless())
			return true
		}
		o.pause.Succeeded()
		o.idle++
		if changed || !o.known {
			o.known, o.idle = true, 0
			if !yield(found, nil) {
				return false
			}
		}
		entry.Throttle(o.idle, ctx.Done())
		select {
		case <-watch.C:
		case <-ctx.Done():
		case <-q.client.draining:
		}
		return true
	}
	for once() {
	}
}

// failed yields the first error of an outage, and pauses.
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
// From the first call on, the client watches the queue in the background, as
// [RWMutex.Observe] does, until somebody waits, the hold ends or
// [Client.Shutdown] begins. The channel usually closes soon after the waiter
// has joined, but there is no guarantee how soon.
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

// wanted is the state of Lock.Wanted, guarded by hold.mu.
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

func (h *hold) awaitWanted(ctx context.Context) {
	h.queue.observe(ctx, func(nodes []driver.Node, _ []Contender, _ error) (more bool) {
		if !h.blocks(nodes) {
			return true
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.wanted.closed {
			close(h.wanted.c)
			h.wanted.stop()
		}
		return false
	})
}

// blocks reports whether a node waits behind the hold's own. A rename may be in
// progress, so the sequence identifies that node.
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
