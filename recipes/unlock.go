package recipes

import (
	"errors"
	"time"

	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// Unlock gives the lock back. It takes no context, so that a call that was
// cancelled can still clean up.
//
// Unlock returns nil once the lock's node is removed. It returns nil at once if
// another Lock holds the same node by re-entry. If the lock was lost before,
// the error matches [ErrLost]: what was done under the lock may have overlapped
// with another holder.
//
// Any other error of a first Unlock matches [ErrUnlock]. The lock was held
// until now, but its node stays for a while:
//
//   - If the store does not answer within 2 s, the error matches
//     driver.ErrUnavailable, too, and never ErrTimeout or
//     context.DeadlineExceeded. The node is removed in the background as soon as
//     possible.
//   - If the client was closed meanwhile, the error matches [ErrClosed], too. The
//     node is removed with the session.
//   - If the store refuses to remove the node, for example because a permission is
//     missing, Unlock does not try again. The error matches that of the driver: with
//     zkdriver fs.ErrPermission, with other drivers the error of their store. The
//     node blocks other contenders until the session ends.
//
// Call Unlock after a loss, too. It tells the client that the caller has
// stopped working under the lock. The client then ends the lost session in the
// store, whose nodes would block other contenders until the session times out
// there.
//
// After Unlock the lock is not held any more, whatever Unlock returned. Its
// contexts are cancelled. A second Unlock returns [ErrNotHeld], or ErrLost
// again.
//
// If shared Locks hold the same node by re-entry, the Unlock of the last
// exclusive Lock is a downgrade: see [Lock.Downgrade].
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
	h.dropLock(l)
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

// release ends the hold after the last Unlock. It returns the loss that the
// caller knows of, because a loss explains every other error.
func (l *Lock) release(lost error) error {
	h := l.hold
	err := h.giveEntryBack()
	if lost != nil {
		return lost
	}
	if err != nil {
		err = l.explain(err)
	}
	if !errors.Is(err, ErrLost) {
		h.reportReleased(err)
	}
	return err
}

func (h *hold) giveEntryBack() error {
	if h.shared != nil {
		return h.shared.takeBack(h)
	}
	return h.entry.Remove(unlockTimeout)
}

// explain returns the error of Unlock if the removal of the node has returned
// err. If the node was gone already, explain reports the loss.
func (l *Lock) explain(err error) error {
	h := l.hold
	var loss *engine.Loss
	if !errors.As(err, &loss) {
		return unlockError(h.queue.name, h.queue.client.closedOr(err))
	}
	lost := h.lostError(*loss) // the removal has found that the node was gone
	l.noteEnd(lost)
	h.reportLoss(lost, true)
	return lost
}

// reportReleased comes last, because a hook may panic.
func (h *hold) reportReleased(err error) {
	if end := h.ending(); end.trace.Released != nil {
		end.trace.Released(end.ctx, ReleasedInfo{
			Lock: h.queue.name,
			Node: h.entry.Place().Name,
			Held: time.Since(h.since),
			Err:  err,
		})
	}
}
