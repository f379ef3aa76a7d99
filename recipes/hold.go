package recipes

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// unlockTimeout is how long Unlock waits for the store.
const unlockTimeout = 2 * time.Second

// hold is one contender's hold of a lock: the Lock that the contender was
// granted, and the Locks of its re-entries. The hold ends when the last of them
// is unlocked.
type hold struct {
	queue  *queue
	want   *want
	entry  *engine.Entry
	lender lender
	since  time.Time

	mu    sync.Mutex
	locks []*Lock // the Locks that are not yet unlocked
	lost  error   // the loss that the Locks were told of; nil: none

	// trace has the hooks Released and Lost, which report how the hold has
	// ended. It is nil until the hook Granted has returned. The field call is the
	// context that the two hooks get, or nil if neither of them is set.
	trace *Trace
	call  context.Context
}

// lender lends an entry to a hold. The entry belongs to this hold alone, or the
// goroutines of a cohort share it.
type lender interface {
	// becameShared is called when a hold that was exclusive has become shared.
	becameShared()
	// giveBack takes the hold back after its last Unlock. If that needs a
	// request to the store, giveBack returns the store's error.
	takeBack(h *hold) error
}

// newHold returns a hold with one Lock.
func newHold(q *queue, w *want, e *engine.Entry, from lender) (*hold, *Lock) {
	made := &struct {
		hold  hold
		first [1]*Lock // saves an allocation
	}{hold: hold{queue: q, want: w, entry: e, lender: from, since: time.Now()}}
	h := &made.hold
	h.locks = made.first[:0]
	return h, h.addLock(w.exclusive)
}

// addLock adds a Lock to the hold. It is called with mu held, or before other
// goroutines know the hold.
func (h *hold) addLock(exclusive bool) *Lock {
	l := newLock(lockState{hold: h, exclusive: exclusive})
	h.locks = append(h.locks, l)
	return l
}

// newLock allocates a Lock together with its state.
func newLock(state lockState) *Lock {
	made := &struct {
		lock  Lock
		state lockState
	}{state: state}
	made.lock.lockState = &made.state
	return &made.lock
}

// check reads the clocks of the session. If the entry was lost, the Locks have
// been told of the loss when check returns. It is called without mu.
func (h *hold) check() {
	if loss := h.entry.Check(); loss != nil {
		h.Lose(*loss)()
	}
}

// Lose tells the Locks that they are lost. Only the first loss counts, and none
// counts after the last Unlock. Before anything else shows the loss, Lose ends the
// contexts of the Locks. So a caller that has seen the channel of Lost closed finds the
// contexts ended. The function that Lose returns logs the loss and calls the hook Lost.
func (h *hold) Lose(loss engine.Loss) (report func()) {
	err := h.lostError(loss)
	for {
		contexts, granted, counts := h.markLost(err)
		if !counts {
			return func() {}
		}
		if len(contexts) == 0 {
			return func() { h.reportLoss(err, granted) }
		}
		for _, c := range contexts {
			c.cancelWith(err)
		}
	}
}

// markLost returns the contexts of the Locks that have not ended. If there are none, it
// tells the Locks that they are lost. It reports with granted whether the hook Granted
// has returned, and with counts whether the loss counts.
func (h *hold) markLost(err *lostError) (contexts []*lockContext, granted, counts bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil || len(h.locks) == 0 {
		return nil, false, false
	}
	for _, l := range h.locks {
		for _, c := range l.contexts { // they stay there, so that an Unlock that comes first ends them, too
			if c.Err() == nil {
				contexts = append(contexts, c)
			}
		}
	}
	if len(contexts) > 0 {
		return contexts, false, true
	}
	h.lost = err
	for _, l := range h.locks {
		if l.lost != nil {
			close(l.lost)
		}
	}
	return nil, h.trace != nil, true
}

func (h *hold) lostError(loss engine.Loss) *lostError {
	return &lostError{lock: h.queue.name, node: loss.Node, cause: loss.Cause}
}

// reportLoss logs a loss and, if the hook Granted had returned before it, calls the
// hook Lost. Otherwise announce calls Lost.
func (h *hold) reportLoss(err *lostError, granted bool) {
	h.queue.options.logger.Warn("dlock: lock lost", "lock", err.lock, "node", err.node, "error", err.cause)
	if granted {
		h.traceLost(err)
	}
}

func (h *hold) traceLost(err *lostError) {
	if trace, ctx := h.hooks(); trace.Lost != nil {
		trace.Lost(ctx, LostInfo{Lock: err.lock, Node: err.node, Held: time.Since(h.since), Err: err})
	}
}

// reportsEnd calls the function granted, which calls the hook Granted. From then on
// the hooks of the trace report how the hold ends, also if granted has panicked. If
// the hold was lost meanwhile, announce calls Lost.
func (h *hold) reportsEnd(ctx context.Context, trace *Trace, granted func()) {
	defer func() {
		h.mu.Lock()
		h.trace, h.call = trace, trace.keep(ctx)
		lost, _ := h.lost.(*lostError)
		h.mu.Unlock()
		if lost != nil {
			h.traceLost(lost)
		}
	}()
	granted()
}

// hooks returns the hooks that report how the hold has ended, and their
// context.
func (h *hold) hooks() (*Trace, context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	trace, ctx := h.trace, h.call
	if trace == nil {
		trace = new(Trace)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return trace, ctx
}

// exclusive reports whether one of the Locks is exclusive. It is called with mu
// held.
func (h *hold) exclusive() bool {
	return slices.ContainsFunc(h.locks, func(l *Lock) bool { return l.exclusive })
}

// heldNow reports whether a Lock of the hold is not unlocked, and whether one of
// these is exclusive.
func (h *hold) heldNow() (held, exclusive bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.locks) > 0, h.exclusive()
}

// ended returns why the hold has ended, or nil. It reads the clocks.
func (h *hold) ended() error {
	h.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.lost != nil:
		return h.lost
	case len(h.locks) == 0:
		return h.queue.notHeld
	}
	return nil
}

// dropLock removes a Lock from the Locks of the hold. It is called with mu held.
func (h *hold) dropLock(l *Lock) {
	h.locks = slices.DeleteFunc(h.locks, func(other *Lock) bool { return other.lockState == l.lockState })
}
