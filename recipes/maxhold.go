package recipes

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// WithMaxHold makes a granted lock count as lost after d, in case its holder
// hangs. The errors of the lock then match [ErrMaxHold] as well as [ErrLost],
// and its contexts end. [Lock.Err] returns the error at d exactly, even after a
// pause of the process. Zero or less means no limit, which is the default.
//
// Unlock then releases the lock as usual, and returns ErrLost. If the holder has
// not called it within another quarter of d, the client releases the lock, so
// that the next contender is granted it although the holder may still be
// working. A resource that checks tokens refuses what that holder writes later.
//
// The limit counts from the grant. A re-entry does not extend it and has none
// of its own, and neither Downgrade nor Unlock of one of several Locks starts
// it anew. [Client.Shutdown] waits for the Unlock of a holder that hangs, as
// after any other loss.
func WithMaxHold(d time.Duration) Option {
	return func(o *options) { o.maxHold = min(d, math.MaxInt64/2) }
}

// maxHold is the limit of one hold.
type maxHold struct {
	limit        time.Duration
	lose, remove *time.Timer
	returned     bool // guarded by hold.mu; whether the entry was given back
}

// limitTo starts the limit. It is called before the first Lock is returned.
func (h *hold) limitTo(d time.Duration) {
	h.max = &maxHold{limit: d}
	left := d - time.Since(h.since)
	h.max.lose = time.AfterFunc(left, h.overstayed)
	h.max.remove = time.AfterFunc(left+d/4, func() { h.queue.client.spawn(h.takeAway) })
}

func (m *maxHold) stop() {
	if m != nil {
		m.lose.Stop()
		m.remove.Stop()
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
	h.overstayed() // in case the timer for it has not run yet, after a pause of the process
	h.mu.Lock()
	hangs := len(h.locks) > 0 && errors.Is(h.lost, ErrMaxHold)
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
