package recipes

import (
	"context"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

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
		if h.lost == nil && len(h.locks) > 0 {
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
	for i := own + 1; i < len(nodes); i++ {
		w := wantOf(nodes[i])
		bothUnits := w.units.of > 0 && h.want.units.of > 0
		if (bothUnits || len(w.rule(nodes[own:own+1])) > 0) && len(w.rule(nodes[:i])) > 0 {
			return true
		}
	}
	return false
}
