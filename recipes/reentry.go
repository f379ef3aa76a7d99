package recipes

import (
	"context"
	"errors"
	"time"
)

// Go's goroutines have no identity, so the owner of a lock is known by the context that the
// lock hands out.

// holdsKey finds a client's holds of one lock in a context.
type holdsKey struct {
	sessions *Sessions
	name     string
}

// heldIn is what a context says of one lock: which Lock it came from, and what the contexts
// around it say.
type heldIn struct {
	lock  *Lock
	outer *heldIn
}

// lockContext is a context that a Lock has to cancel.
type lockContext struct {
	cancel context.CancelCauseFunc
	stop   func() bool // stops waiting for the context to end by itself
}

func (c *lockContext) end(cause error) {
	if c.stop != nil {
		c.stop()
	}
	c.cancel(cause)
}

// Context returns a child of parent that is cancelled when the lock is lost or unlocked;
// context.Cause then matches ErrLost or ErrNotHeld. Work that the lock protects should run
// under it.
//
// Lock and RLock of the same lock and client, called with this context or a child of it, enter
// again at once and without a request. So whoever has the context is let in: goroutines that
// share it are inside together. Somebody who holds shared and wants exclusively gets
// ErrUpgrade.
//
// The lock forgets the context when parent ends or, where parent cannot end, with Unlock. A nil
// parent counts as context.Background.
func (l *Lock) Context(parent context.Context) context.Context {
	if parent == nil {
		parent = context.Background()
	}
	if l.fromNoCall() {
		ctx, cancel := context.WithCancelCause(parent)
		cancel(errNoLock)
		return ctx
	}
	h := l.hold
	outer, _ := parent.Value(h.m.key).(*heldIn)
	ctx, cancel := context.WithCancelCause(parent)
	ctx = context.WithValue(ctx, h.m.key, &heldIn{lock: l, outer: outer})
	if cause := l.remember(parent, &lockContext{cancel: cancel}); cause != nil {
		cancel(cause)
	}
	return ctx
}

// remember keeps a context to cancel it later, or says why it has to be cancelled now.
func (l *Lock) remember(parent context.Context, c *lockContext) error {
	l.hold.check()
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	switch {
	case l.unlocked:
		return l.notHeld()
	case l.hold.lost != nil:
		return l.hold.lost
	}
	if parent.Done() != nil {
		c.stop = context.AfterFunc(parent, func() { l.forget(c) })
	}
	l.contexts = append(l.contexts, c)
	return nil
}

// reenter enters a lock again that ctx says is held. It returns nothing if none is.
func (m *RWMutex) reenter(ctx context.Context, mode Mode) (*Lock, error) {
	in, _ := ctx.Value(m.key).(*heldIn)
	for ; in != nil; in = in.outer {
		lost, held := in.lock.state()
		if lost != nil {
			return nil, lost
		}
		if !held {
			continue
		}
		if err := ctx.Err(); err != nil {
			a := attempt{m: m, began: time.Now()}
			return nil, a.interrupted(ctx)
		}
		if l, err := in.lock.enter(mode); l != nil || err != nil {
			return l, err
		}
	}
	return nil, nil
}

// state tells whether the Lock is held, and why it was lost, also if it was unlocked after
// that.
func (l *Lock) state() (lost error, held bool) {
	l.hold.check()
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	switch {
	case !l.unlocked:
		return l.hold.lost, true
	case errors.Is(l.end, ErrLost):
		return l.end, false
	}
	return nil, false
}
