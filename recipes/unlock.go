package recipes

import (
	"errors"
	"time"

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
//     which is fs.ErrPermission with zkdriver and the store's own error with
//     other drivers. The node blocks other contenders until the session ends.
//
// Call Unlock after a loss, too. It tells the client that the work under the
// lock has stopped. The client can then end the lost session in the store,
// whose nodes would otherwise block other contenders until it times out.
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
		return l.end
	}
	lost, before := h.lost, h.exclusive()
	l.unlocked = true
	l.end = h.queue.notHeld
	if lost != nil {
		l.end = lost
	}
	contexts, cause := l.takeContexts(), l.end
	h.dropLock(l.lockState)
	last := len(h.locks) == 0
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
	defer h.discharge()
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

// explain converts the error of removing the node to that of Unlock. If the
// node was already gone, the lock was lost.
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

// reportReleased runs the Released hook. It must come last, because hooks may
// panic.
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
