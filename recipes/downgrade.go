package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Downgrade turns an exclusive lock into a shared one, and the caller holds it
// without a gap. Waiting readers may then get the lock, up to the first waiting
// writer. The token stays. If the lock is shared already, and the store has
// been told so or need not be told, Downgrade returns nil at once.
//
// If other Locks hold the same node exclusively by re-entry, the store is told
// when the last of them unlocks or downgrades. A driver without a Replacer
// cannot tell the store at all: readers then wait until Unlock.
//
// After an error of the store or of ctx the lock counts as shared all the same,
// because the store may have granted it to readers. The error matches
// driver.ErrUnavailable. The client tries again in the background, and another
// Downgrade waits for that. If the lock is lost or unlocked already, the error
// matches [ErrLost] or [ErrNotHeld].
func (l *Lock) Downgrade(ctx context.Context) error {
	if l.fromNoCall() {
		return errNoLock
	}
	h := l.hold
	if ctx == nil {
		return lockError(h.queue.name, errors.New("nil context"))
	}
	h.check()
	h.mu.Lock()
	switch {
	case l.unlocked:
		defer h.mu.Unlock()
		return l.end
	case h.lost != nil:
		defer h.mu.Unlock()
		return h.lost
	}
	l.exclusive = false
	shared := h.markShared()
	h.mu.Unlock()
	if !shared {
		return nil
	}
	return h.downgrade(ctx, lockError)
}

// downgradeRest downgrades a hold whose last exclusive Lock was unlocked while
// shared Locks remain.
func (l *Lock) downgradeRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	err := l.hold.downgrade(ctx, unlockError)
	switch {
	case errors.Is(err, ErrLost):
		l.noteEnd(err)
	case errors.Is(err, ErrNotHeld):
		return nil // all Locks of the hold, now shared, were unlocked meanwhile; so the node is gone
	}
	return err
}

// markShared is called, with mu held, when a Lock was downgraded or unlocked.
// It reports whether the hold is shared now and its node has to be renamed.
func (h *hold) markShared() bool {
	if h.want.downgraded == nil || len(h.locks) == 0 || h.exclusive() {
		return false
	}
	h.entry.MarkRenamed(h.queue.prefix(h.want.downgraded))
	return true
}

// downgrade tells the cohort and the store that a hold is shared. It returns
// why the hold has ended, or the error of the store as the function failed
// wraps it.
func (h *hold) downgrade(ctx context.Context, failed func(lock string, err error) error) error {
	if h.shared != nil {
		h.shared.admitReaders()
	}
	err := h.entry.Rename(ctx)
	if ended := h.ended(); ended != nil {
		return ended
	}
	if err == nil {
		return nil
	}
	return failed(h.queue.name, fmt.Errorf("%w: the downgrade of %s goes on in the background: %w",
		driver.ErrUnavailable, h.entry.Place().Name, err))
}
