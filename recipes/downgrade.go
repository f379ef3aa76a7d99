package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Downgrade turns an exclusive lock into a shared one, without releasing it in
// between. Waiting readers may then get the lock, up to the first waiting
// writer. The token stays the same. Downgrade is a no-op if the lock is already
// shared, in the store as well.
//
// If other Locks hold the same node exclusively by re-entry, it stays exclusive
// in the store until the last of them unlocks or downgrades.
//
// If the store or ctx fails, the lock counts as shared anyway, because the
// store may already have granted it to readers. The error matches
// driver.ErrUnavailable. The client retries in the background, and another
// Downgrade waits for the result. If the lock is already lost or unlocked, the
// error matches [ErrLost] or [ErrNotHeld]. For units of a [Semaphore] it always
// returns an error, and they stay held.
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
	case h.want.units.of > 0:
		defer h.mu.Unlock()
		return lockError(h.queue.name, errUnitsDowngraded)
	}
	l.exclusive = false
	shared := h.markShared()
	h.mu.Unlock()
	if !shared {
		return nil
	}
	return h.downgrade(ctx, lockError)
}

// downgradeRest makes a hold shared when its last exclusive Lock was unlocked
// but shared Locks remain.
func (l *Lock) downgradeRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	err := l.hold.downgrade(ctx, unlockError)
	switch {
	case errors.Is(err, ErrLost):
		l.noteEnd(err)
	case errors.Is(err, ErrNotHeld):
		return nil // all Locks were unlocked meanwhile, so the node is gone
	}
	return err
}

// markShared reports whether the hold has become shared and its node must be
// renamed. It is called with mu held, after a Lock was downgraded or unlocked.
func (h *hold) markShared() bool {
	if h.want.downgraded == nil || len(h.locks) == 0 || h.exclusive() {
		return false
	}
	h.entry.MarkRenamed(h.queue.prefix(h.want.downgraded))
	return true
}

// downgrade makes the hold shared in the store. The function failed wraps an
// error of the store.
func (h *hold) downgrade(ctx context.Context, failed func(lock string, err error) error) error {
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
