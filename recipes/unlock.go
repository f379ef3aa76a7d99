package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// unlockTimeout is how long Unlock waits for the store.
const unlockTimeout = 2 * time.Second

// Unlock gives the lock back. It takes no context, so that a call that was
// cancelled can still clean up.
//
// Unlock returns nil once the lock's node is removed. It returns nil at once if
// another Lock holds the same node by re-entry. If the lock was lost before, the
// error matches [ErrLost]: what was done under the lock may have overlapped with
// another holder.
//
// Any other error of a first Unlock matches [ErrUnlock]. The lock was held until
// now, but its node stays for a while:
//
//   - If the store does not answer within 2 s, the error matches
//     driver.ErrUnavailable, too, and never ErrTimeout or
//     context.DeadlineExceeded. The node is removed in the background as soon as
//     possible.
//   - If the client was closed meanwhile, the error matches [ErrClosed], too. The
//     node is removed with the session.
//   - If the store refuses to remove the node, for example because a permission is
//     missing, Unlock returns at once. The error matches the error of the driver,
//     such as fs.ErrPermission. The node blocks other contenders until the session
//     ends.
//
// Call Unlock after a loss, too. It tells the client that the caller has stopped
// working under the lock. The client then ends the lost session in the store,
// whose nodes would block other contenders until the session times out there.
//
// After Unlock the lock is not held any more, whatever Unlock returned. Its
// contexts are cancelled. A second Unlock returns [ErrNotHeld], or ErrLost again.
//
// If shared Locks hold the same node by re-entry, the Unlock of the last exclusive
// Lock is a downgrade: see [Lock.Downgrade].
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
	lost := h.lost
	l.unlocked = true
	l.end = h.m.notHeld
	if lost != nil {
		l.end = lost
	}
	endings := l.detach(false)
	cause := l.notHeld()
	finish := h.leave(l)
	last := l.turn.locks == 0
	h.mu.Unlock()

	for _, end := range endings {
		end(cause)
	}
	if lost != nil {
		return l.end
	}
	err := finish(l)
	if last {
		l.released(err)
	}
	return err
}

// released traces the end of a turn, unless it was reported as lost. It is
// called without mu, after everything else: a hook may panic.
func (l *Lock) released(err error) {
	t := l.turn // nothing changes it any more
	if t.trace == nil || t.trace.Released == nil || errors.Is(err, ErrLost) {
		return
	}
	t.trace.Released(t.context(), ReleasedInfo{
		Lock: l.hold.m.name,
		Node: l.hold.placeNow().Name,
		Held: time.Since(t.since),
		Err:  err,
	})
}

// leave takes one Lock off the hold and returns what the store has to be told. It is called
// with mu held.
func (h *hold) leave(l *Lock) func(*Lock) error {
	before := h.mode()
	h.held[l.mode]--
	l.turn.locks--
	same := func(other *Lock) bool { return other.lockState == l.lockState }
	if i := slices.IndexFunc(h.locks, same); i >= 0 {
		h.locks = slices.Delete(h.locks, i, i+1)
	}
	switch {
	case h.lost != nil:
		if h.held[Shared]+h.held[Exclusive] == 0 {
			h.session.lostUnlocked()
		}
		return nil
	case h.held[Shared]+h.held[Exclusive] == 0 && h.retainer != nil:
		return (*Lock).endTurn
	case h.held[Shared]+h.held[Exclusive] == 0:
		h.released = true
		h.stop()
		return (*Lock).release
	case before == Exclusive && h.mode() == Shared:
		h.downgraded = true
		return (*Lock).downgradeRest
	}
	return func(*Lock) error { return nil }
}

// release removes the node and keeps what that has shown for a second Unlock.
func (l *Lock) release() error {
	err := l.hold.giveBack()
	if err != nil {
		l.gaveBack(err)
	}
	return err
}

func (l *Lock) gaveBack(err error) {
	var lost *lostError
	if errors.As(err, &lost) {
		l.endedBy(err)
		l.hold.mu.Lock()
		report := l.hold.reports(lost, []*turn{l.turn})
		l.hold.mu.Unlock()
		report()
	}
}

// giveBack removes the node of a hold that was marked as released.
func (h *hold) giveBack() error {
	h.session.remove(h)
	return h.remove()
}

func (h *hold) remove() error {
	ctx := &h.leaving
	ctx.limit = unlockTimeout
	defer ctx.cancel()
	place := h.lastPlace(ctx)
	err := h.takeAway(ctx, place)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrGone):
		return &lostError{lock: h.m.name, node: place.Name, cause: errTaken}
	case h.session.Err() != nil:
		return unlockError(h.m.name, h.m.client.closedOr(fmt.Errorf("%w: %w", driver.ErrUnavailable, err)))
	case !passing(err):
		h.session.refused(h.m.name, place.Name, err)
		return h.cannotRemove(place, err)
	}
	return h.removeLater(ctx, place, err)
}

// takeAway removes the node. A node that has stood for an exclusive lock to the
// end is released: its release grants the lock to the next waiter, see passedOn.
func (h *hold) takeAway(ctx context.Context, place driver.Place) error {
	why := driver.Changed
	if h.exclusive(place) {
		why = driver.Released
	}
	return h.session.Delete(ctx, h.m.name, place, why)
}

// exclusive tells whether the node has stood for an exclusive lock to the end.
func (h *hold) exclusive(place driver.Place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return modeOf(place.Node) == Exclusive && !h.downgraded
}

// endedBy has a second Unlock return what the first one found out.
func (l *Lock) endedBy(err error) {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	l.end = err
}

// removeLater leaves the node to the reaper and waits for it as long as Unlock may.
func (h *hold) removeLater(ctx context.Context, place driver.Place, err error) error {
	c := h.m.removal(h.session, place)
	h.session.reap(c)
	select {
	case <-c.done:
		switch {
		case c.err == nil:
			return nil
		case h.session.Err() == nil:
			return h.cannotRemove(place, c.err)
		}
	case <-ctx.Done():
	case <-h.m.client.done:
		return unlockError(h.m.name, ErrClosed)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", unlockTimeout)
	}
	return unlockError(h.m.name, fmt.Errorf("%w: node %s is removed when the store answers: %w", driver.ErrUnavailable, place.Name, err))
}

// cannotRemove returns what Unlock says where the store refuses to remove the
// node. The lock is not held any more, but the node stands in the way of others
// as long as the session lives.
func (h *hold) cannotRemove(place driver.Place, err error) error {
	return unlockError(h.m.name, fmt.Errorf("node %s stays until the session ends, and blocks others until then: %w", place.Name, err))
}

// lastPlace returns the place of a hold that was given back, once no Replace can change it any
// more: two requests about one node must not overtake each other.
func (h *hold) lastPlace(ctx context.Context) driver.Place {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.replacing != nil && h.waitForReplace(ctx) == nil { // it was interrupted
	}
	return h.place
}

// waitForReplace gives mu up while it waits for the Replace in flight.
func (h *hold) waitForReplace(ctx context.Context) error {
	inFlight := h.replacing
	h.mu.Unlock()
	defer h.mu.Lock()
	select {
	case <-inFlight:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
