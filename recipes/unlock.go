package recipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// Unlock releases the lock. It takes no context, so that cancelled work can
// still clean up.
//
// Unlock returns nil once the lock's node is removed. If another Lock still
// holds the same node by re-entry, the node stays, and Unlock returns nil at
// once. If the lock was lost before, the error matches [ErrLost]: work done
// under the lock may have overlapped with another holder.
//
// Any other error of the first Unlock matches [ErrUnlock]. It means that the
// lock was held until now, but that its node stays for a while:
//
//   - If the store does not answer within 2 s, the error also matches
//     driver.ErrUnavailable, and never ErrTimeout or context.DeadlineExceeded.
//     The node is removed in the background as soon as possible.
//   - If the client was closed meanwhile, the error also matches [ErrClosed]. The
//     node is removed with the session.
//   - If the store refuses to remove the node, for example for lack of
//     permission, Unlock does not retry. The error matches that of the driver,
//     such as fs.ErrPermission with zkdriver. The node blocks other contenders
//     until the session ends.
//
// Call Unlock after a loss, too: only then does the client end the lost session
// in the store, where its nodes would otherwise block other contenders until it
// times out.
//
// Whatever Unlock returns, the lock is no longer held and its contexts are
// cancelled. A second Unlock returns [ErrNotHeld], or ErrLost again.
//
// If shared Locks hold the same node by re-entry, the Unlock of the last
// exclusive Lock is a downgrade; see [Lock.Downgrade].
func (l *Lock) Unlock() error {
	if l.fromNoCall() {
		return errNoLock
	}
	h := l.hold
	h.check()
	h.mu.Lock()
	if l.unlocked {
		defer h.mu.Unlock()
		return l.unlockErr
	}
	lost, before := h.loss, h.exclusive()
	l.unlocked = true
	l.unlockErr = h.queue.notHeld
	if lost != nil {
		l.unlockErr = lost
	}
	contexts, cause := slices.Collect(maps.Values(l.contexts)), l.unlockErr
	l.contexts = nil
	h.locks = slices.DeleteFunc(h.locks, func(other *lockState) bool { return other == l.lockState })
	last := len(h.locks) == 0
	if last {
		h.wanted.stop()
	}
	shared := lost == nil && before && h.markShared()
	h.mu.Unlock()

	for _, c := range contexts {
		c.cancelWith(cause)
	}
	switch {
	case last:
		return l.release(lost)
	case lost != nil:
		return lost
	case shared:
		return l.downgradeRest()
	}
	return nil
}

// release ends the hold after the last Unlock. A known loss takes precedence
// over other errors, because it explains them.
func (l *Lock) release(lost error) error {
	h := l.hold
	defer h.queue.client.holds.end()
	h.max.stop()
	err := h.giveEntryBack()
	if lost != nil {
		return lost
	}
	if err != nil {
		err = l.explain(err)
	}
	if !errors.Is(err, ErrLost) {
		h.reportReleased(l.Mode(), err)
	}
	return err
}

func (h *hold) giveEntryBack() error {
	if !h.claimEntry() {
		return nil
	}
	return h.entry.Remove(unlockTimeout)
}

// explain turns a failed removal into the error of Unlock. If the node was
// already gone, the lock was lost.
func (l *Lock) explain(err error) error {
	h := l.hold
	var loss *entry.Loss
	if !errors.As(err, &loss) {
		return unlockError(h.queue.name, h.queue.client.closedOr(err))
	}
	lost := h.lostError(*loss)
	lost.mode = l.Mode()
	l.noteEnd(lost)
	h.reportLoss(lost, true)
	return lost
}

// reportReleased must come last, because the hook may panic.
func (h *hold) reportReleased(mode Mode, err error) {
	if end := h.ending(); end.trace.Released != nil {
		end.trace.Released(end.ctx, ReleasedInfo{
			Recipe:  h.queue.recipe,
			Lock:    h.queue.name,
			Node:    h.entry.Place().Name,
			Mode:    mode,
			Granted: h.want.mode(),
			Held:    time.Since(h.since),
			Err:     err,
		})
	}
}

// Downgrade turns an exclusive lock into a shared one, without releasing it in
// between. Waiting readers may then get the lock, up to the first waiting
// writer. The token stays the same. If the lock is already shared, and the
// store has confirmed it, Downgrade is a no-op.
//
// If other Locks hold the same node exclusively by re-entry, it stays exclusive
// in the store until the last of them unlocks or downgrades.
//
// If the store fails or ctx ends, the lock counts as shared anyway, and the
// error matches driver.ErrUnavailable. The client retries in the background,
// and another Downgrade waits for the result.
//
// If the lock is already lost or unlocked, the error matches [ErrLost] or
// [ErrNotHeld]. Units of a [Semaphore] cannot be downgraded: Downgrade returns
// an error, and they stay held.
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
		return l.unlockErr
	case h.loss != nil:
		defer h.mu.Unlock()
		return h.loss
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

// downgradeRest makes the hold shared, as its last exclusive Lock was unlocked.
func (l *Lock) downgradeRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	err := l.hold.downgrade(ctx, unlockError)
	switch {
	case errors.Is(err, ErrLost):
		l.noteEnd(err)
	case errors.Is(err, ErrNotHeld):
		return nil // all Locks were unlocked meanwhile
	}
	return err
}

// markShared marks the node for a rename if the hold is now shared, and reports
// whether it is. Called with mu held.
func (h *hold) markShared() bool {
	if h.want.downgraded == nil || len(h.locks) == 0 || h.exclusive() {
		return false
	}
	h.entry.MarkRenamed(h.queue.prefix(h.want.downgraded))
	return true
}

func (h *hold) downgrade(ctx context.Context, failed func(lock string, err error) error) error {
	err := h.entry.Rename(ctx)
	if ended := h.whyEnded(); ended != nil {
		return ended
	}
	if err == nil {
		return nil
	}
	return failed(h.queue.name, fmt.Errorf("%w: the downgrade of %s goes on in the background: %w",
		driver.ErrUnavailable, h.entry.Place().Name, err))
}
