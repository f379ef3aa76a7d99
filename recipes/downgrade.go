package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Downgrade turns an exclusive lock into a shared one, and the caller holds it
// without a gap. Waiting readers may then get the lock, up to the first waiting
// writer. The token stays. If the lock is shared already, Downgrade does nothing.
//
// If other Locks hold the same node exclusively by re-entry, the store is told when
// the last of them unlocks or downgrades. A driver without a Replacer cannot tell
// the store at all: readers then wait until Unlock.
//
// After an error of the store or of ctx the lock counts as shared all the same,
// because the store may have granted it to readers. The error matches
// driver.ErrUnavailable. The client goes on telling the store in the background,
// and another Downgrade waits for that. If there was nothing to downgrade, the
// error matches [ErrLost] or [ErrNotHeld].
func (l *Lock) Downgrade(ctx context.Context) error {
	if l.fromNoCall() {
		return errNoLock
	}
	h := l.hold
	if ctx == nil {
		return lockError(h.m.name, errors.New("nil context"))
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
	if l.mode == Exclusive {
		l.mode = Shared
		h.held[Exclusive]--
		h.held[Shared]++
		h.downgraded = h.downgraded || h.mode() == Shared
	}
	tell := h.downgraded
	h.mu.Unlock()
	if !tell {
		return nil
	}
	if r := h.retained(); r != nil {
		r.becameShared(h)
	}
	return h.downgrade(ctx, lockError)
}

// downgradeRest tells the store that the last exclusive Lock was unlocked while shared ones
// remain.
func (l *Lock) downgradeRest() error {
	if r := l.hold.retained(); r != nil {
		r.becameShared(l.hold)
	}
	err := l.hold.downgradeInTime()
	switch {
	case errors.Is(err, ErrLost):
		l.endedBy(err)
	case errors.Is(err, ErrNotHeld):
		return nil // the shared ones were unlocked meanwhile, and the node is gone
	}
	return err
}

// downgradeInTime is downgrade with the patience of Unlock.
func (h *hold) downgradeInTime() error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	return h.downgrade(ctx, unlockError)
}

// downgrade tells the store, and leaves it to the reaper if the store does not
// confirm it. It returns what failed makes of the error then.
func (h *hold) downgrade(ctx context.Context, failed func(lock string, err error) error) error {
	err := h.replace(ctx)
	if errors.Is(err, driver.ErrGone) {
		h.lose(errTaken)()
	}
	switch {
	case h.over():
		return h.why()
	case err == nil:
		return nil
	}
	h.retell()
	return failed(h.m.name, fmt.Errorf("%w: the downgrade of %s goes on in the background: %w",
		driver.ErrUnavailable, h.placeNow().Name, err))
}

// errEnded ends a Replace that is under way.
var errEnded = errors.New("the lock has ended meanwhile")

// replace gives the node its shared name, unless that is done or the lock is given back.
func (h *hold) replace(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	place, wanted, err := h.beginReplace(ctx, func() { cancel(errEnded) })
	if !wanted {
		return err
	}
	defer func() { h.endReplace(place) }() // also if the driver panics
	after, err := driver.Replace(ctx, h.session.Session, h.m.name, place, h.m.options.prefix[Shared])
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err == nil:
		place = after
	}
	err = because(ctx, err)
	if hook := h.m.options.trace.Downgraded; hook != nil {
		hook(ctx, DowngradedInfo{Lock: h.m.name, Node: place.Name, Err: err})
	}
	return err
}

func (h *hold) endReplace(p driver.Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.replacing)
	h.replacing, h.interrupt, h.place = nil, nil, p
}

func (h *hold) beginReplace(ctx context.Context, cancel context.CancelFunc) (p driver.Place, wanted bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.replacing != nil {
		if err := h.waitForReplace(ctx); err != nil {
			return driver.Place{}, false, err
		}
	}
	if h.released || h.lost != nil || modeOf(h.place.Node) == Shared {
		return driver.Place{}, false, nil
	}
	h.replacing, h.interrupt = make(chan struct{}), cancel
	return h.place, true, nil
}

// retell has the reaper tell the store, until the store confirms it or refuses it for good:
// then readers wait until Unlock.
func (h *hold) retell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retelling {
		return
	}
	h.retelling = true
	h.session.reap(&chore{lock: h.m.name, node: h.place.Name, trace: h.m.options.trace, try: h.tryRetelling})
}

func (h *hold) tryRetelling(ctx context.Context) error {
	err := h.replace(ctx)
	passing := err != nil && (ctx.Err() != nil || errors.Is(err, driver.ErrUnavailable))
	if passing && !h.over() {
		return err
	}
	h.mu.Lock()
	h.retelling = false
	h.mu.Unlock()
	if errors.Is(err, driver.ErrGone) {
		h.lose(errTaken)()
	}
	return nil
}
