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

// hold is one contender's hold of an entry: the Lock of its grant, and those of
// re-entries. It ends with the last Unlock.
type hold struct {
	queue  *queue
	want   *want
	entry  *engine.Entry
	shared *sharedEntry // lends the entry and takes it back; nil without retention
	since  time.Time

	mu    sync.Mutex
	locks []*Lock // guarded by mu; without the unlocked ones
	lost  error   // guarded by mu; nil until the Locks know of a loss
	hooks *ending // guarded by mu; nil until the hook Granted has returned
}

// ending is how to report the end of a hold.
type ending struct {
	trace *Trace          // has the hooks Released and Lost
	ctx   context.Context // for these hooks
}

// unreported is the ending of a hold without hooks. It is shared, so that such
// a hold allocates none.
var unreported = &ending{new(Trace), context.Background()}

func newHold(q *queue, w *want, e *engine.Entry, shared *sharedEntry) (*hold, *Lock) {
	made := &struct {
		hold  hold
		first [1]*Lock // saves an allocation
	}{hold: hold{queue: q, want: w, entry: e, shared: shared, since: time.Now()}}
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
		h.tellLoss(*loss)()
	}
}

// tellLoss tells the Locks that they are lost. Only the first loss counts, and
// none after the last Unlock. The contexts of the Locks end before Lost closes,
// so a caller that has seen Lost closed finds them ended. report logs the loss
// and calls the hook Lost.
func (h *hold) tellLoss(loss engine.Loss) (report func()) {
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

// markLost returns the contexts of the Locks that have not ended. If there are
// none, it marks the Locks as lost. granted reports whether the hook Granted has
// returned, and counts whether the loss counts.
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
	return nil, h.hooks != nil, true
}

func (h *hold) lostError(loss engine.Loss) *lostError {
	return &lostError{lock: h.queue.name, node: loss.Node, cause: loss.Cause}
}

// reportLoss logs a loss. It calls the hook Lost, unless the hook Granted has
// not returned: then reportsEnd calls Lost.
func (h *hold) reportLoss(err *lostError, granted bool) {
	h.queue.options.logger.Warn("dlock: lock lost", "lock", err.lock, "node", err.node, "error", err.cause)
	if granted {
		h.traceLost(err)
	}
}

func (h *hold) traceLost(err *lostError) {
	if end := h.ending(); end.trace.Lost != nil {
		end.trace.Lost(end.ctx, LostInfo{Lock: err.lock, Node: err.node, Held: time.Since(h.since), Err: err})
	}
}

// reportsEnd calls granted, which calls the hook Granted. From then on the hold
// reports its end to the trace, also if granted panics. If the hold was lost
// meanwhile, reportsEnd calls the hook Lost.
func (h *hold) reportsEnd(ctx context.Context, trace *Trace, granted func()) {
	defer func() {
		h.mu.Lock()
		h.hooks = unreported
		if trace.Released != nil || trace.Lost != nil {
			h.hooks = &ending{trace, context.WithoutCancel(ctx)}
		}
		lost, _ := h.lost.(*lostError)
		h.mu.Unlock()
		if lost != nil {
			h.traceLost(lost)
		}
	}()
	granted()
}

func (h *hold) ending() *ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hooks == nil {
		return unreported
	}
	return h.hooks
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

// dropLock is called with mu held.
func (h *hold) dropLock(l *Lock) {
	h.locks = slices.DeleteFunc(h.locks, func(other *Lock) bool { return other.lockState == l.lockState })
}
