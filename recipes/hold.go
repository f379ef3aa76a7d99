package recipes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/recipes/internal/entry"
)

const unlockTimeout = 2 * time.Second

// hold is one grant of a lock, shared by its Lock and those of re-entries. It
// ends with the last Unlock.
type hold struct {
	queue *queue
	want  *want
	entry *entry.Entry
	since time.Time
	max   *holdLimit // nil without WithMaxHold; immutable after limitTo

	mu     sync.Mutex
	locks  []*lockState // guarded by mu; Locks not yet unlocked
	loss   error        // guarded by mu; nil until markLost
	wanted wanted
	hooks  *ending // guarded by mu; nil until Granted has returned
}

// ending has the hooks to call at the end of a hold, and their context.
type ending struct {
	trace *Trace
	ctx   context.Context // passed to the hooks
}

var unreported = &ending{new(Trace), context.Background()}

func newHold(q *queue, w *want, e *entry.Entry) (*hold, *Lock) {
	made := &struct {
		hold  hold
		first [1]*lockState // saves an allocation
	}{hold: hold{queue: q, want: w, entry: e, since: time.Now()}}
	h := &made.hold
	h.locks = made.first[:0]
	return h, h.addLock(w.exclusive)
}

// addLock must be called with mu held, or before the hold is published.
func (h *hold) addLock(exclusive bool) *Lock {
	l := newLock(lockState{hold: h, exclusive: exclusive})
	h.locks = append(h.locks, l.lockState)
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

// check detects an expired lease and the end of WithMaxHold's limit, and then
// marks the Locks as lost. It is called without mu.
func (h *hold) check() {
	if loss := h.entry.Check(); loss != nil {
		h.tellLoss(*loss)
	} else if h.isOverstayed() {
		h.overstayed()
	}
}

// tellLoss marks the Locks as lost. Their contexts end before their Lost
// channels close, because code woken by Lost may use a context.
func (h *hold) tellLoss(loss entry.Loss) {
	err := h.lostError(loss)
	for {
		contexts, granted, counts := h.markLost(err)
		if !counts {
			return
		}
		if len(contexts) == 0 {
			h.reportLoss(err, granted)
			return
		}
		for _, c := range contexts {
			c.cancelWith(err)
		}
	}
}

// markLost marks the Locks as lost once their contexts have ended. Until then
// it returns contexts that the caller must cancel before it tries again.
func (h *hold) markLost(err *lostError) (contexts []*lockContext, granted, counts bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loss != nil || len(h.locks) == 0 {
		return nil, false, false
	}
	for _, l := range h.locks {
		for _, c := range l.contexts { // stay in l.contexts for a concurrent Unlock
			if c.Err() == nil {
				contexts = append(contexts, c)
			}
		}
	}
	if len(contexts) > 0 {
		return contexts, false, true
	}
	err.mode = h.mode()
	h.loss = err
	h.wanted.stop()
	for _, l := range h.locks {
		if l.lost != nil {
			close(l.lost)
		}
	}
	return nil, h.hooks != nil, true
}

func (h *hold) lostError(loss entry.Loss) *lostError {
	return &lostError{lock: h.queue.name, node: loss.Node, cause: loss.Cause}
}

// reportLoss logs a loss and runs the Lost hook, unless the Granted hook is still
// running.
func (h *hold) reportLoss(err *lostError, granted bool) {
	h.queue.client.report(func() {
		h.queue.options.logger.Warn("dlock: lock lost", "lock", err.lock, "node", err.node, "error", err.cause)
		if granted {
			h.traceLost(err)
		}
	})
}

func (h *hold) traceLost(err *lostError) {
	if end := h.ending(); end.trace.Lost != nil {
		end.trace.Lost(end.ctx, LostInfo{Recipe: h.queue.recipe, Lock: err.lock, Node: err.node, Mode: err.mode, Granted: h.want.mode(), Held: time.Since(h.since), Err: err})
	}
}

// grantReported is called after the Granted hook, even if that panics. It
// allows the hooks Released and Lost, which must not run earlier.
func (h *hold) grantReported(ctx context.Context) {
	trace := h.queue.options.trace
	h.mu.Lock()
	h.hooks = unreported
	if trace.Released != nil || trace.Lost != nil {
		h.hooks = &ending{trace, context.WithoutCancel(ctx)}
	}
	lost, _ := h.loss.(*lostError)
	h.mu.Unlock()
	if lost != nil {
		h.queue.client.report(func() { h.traceLost(lost) })
	}
}

func (h *hold) ending() *ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hooks == nil {
		return unreported
	}
	return h.hooks
}

// exclusive must be called with mu held.
func (h *hold) exclusive() bool {
	return slices.ContainsFunc(h.locks, func(l *lockState) bool { return l.exclusive })
}

// mode must be called with mu held.
func (h *hold) mode() Mode {
	if h.exclusive() {
		return Exclusive
	}
	return Shared
}

func (h *hold) whyEnded() error {
	h.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.loss != nil:
		return h.loss
	case len(h.locks) == 0:
		return h.queue.notHeld
	}
	return nil
}

// WithMaxHold makes a granted lock count as lost after d, in case its holder
// hangs. The errors of the lock then match [ErrMaxHold] as well as [ErrLost],
// and its contexts end. [Lock.Err] returns the error at d exactly, even after a
// pause of the process. Zero or less (the default) is no limit.
//
// Unlock then releases the lock as usual, and returns ErrLost. If the holder
// has not called Unlock within another quarter of d, the client releases the
// lock, although the holder may still be working; see [Lock.Token].
//
// The limit counts from the grant, and nothing extends it, not even a re-entry.
// [Client.Shutdown] waits for the Unlock of a hanging holder, as after any
// other loss.
func WithMaxHold(d time.Duration) Option {
	return func(o *options) { o.maxHold = min(d, math.MaxInt64/2) }
}

type holdLimit struct {
	limit         time.Duration
	lose, release *time.Timer
	returned      bool // guarded by hold.mu; set by claimEntry
}

// limitTo starts the timers. It is called before the first Lock is returned.
func (h *hold) limitTo(d time.Duration) {
	h.max = &holdLimit{limit: d}
	left := d - time.Since(h.since)
	h.max.lose = time.AfterFunc(left, h.overstayed)
	h.max.release = time.AfterFunc(left+d/4, func() { h.queue.client.spawn(h.takeAway) })
}

func (m *holdLimit) stop() {
	if m != nil {
		m.lose.Stop()
		m.release.Stop()
	}
}

func (h *hold) isOverstayed() bool { return h.max != nil && time.Since(h.since) >= h.max.limit }

// overstayed marks the Locks as lost. The entry stays granted until all of them
// are unlocked, or takeAway releases it.
func (h *hold) overstayed() {
	h.tellLoss(entry.Loss{Node: h.entry.Place().Name, Cause: fmt.Errorf("%w: %v", ErrMaxHold, h.max.limit)})
}

// takeAway releases the entry of a holder that hangs.
func (h *hold) takeAway() {
	h.overstayed() // in case its own timer is late
	h.mu.Lock()
	hangs := len(h.locks) > 0 && errors.Is(h.loss, ErrMaxHold)
	h.mu.Unlock()
	if !hangs {
		return
	}
	h.queue.options.logger.Warn("dlock: releasing a lock whose holder has not unlocked it", "lock", h.queue.name, "node", h.entry.Place().Name)
	_ = h.giveEntryBack() // on error the reaper retries
}

// claimEntry reports whether the caller is the first to release the entry. With
// WithMaxHold, both Unlock and takeAway may try to.
func (h *hold) claimEntry() bool {
	if h.max == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.max.returned
	h.max.returned = true
	return first
}
