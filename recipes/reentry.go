package recipes

import (
	"context"
	"errors"
)

// Context returns a child of parent that is cancelled when the lock is lost or
// unlocked. Its context.Cause then matches [ErrLost] or [ErrNotHeld]. Work that
// the lock protects should run under this context.
//
// Re-entry: a call of Lock or RLock of the same lock and client with this
// context, or with a child of it, takes the lock again, at once and without a
// request. A shared Lock cannot be taken again exclusively: that returns
// [ErrUpgrade].
//
// Each goroutine that has the context can take the lock again. So goroutines
// that share the context do not exclude each other, even if each of them calls
// Lock:
//
//	workers, ctx := errgroup.WithContext(lock.Context(ctx))
//	for _, item := range items {
//		// These calls run at the same time.
//		workers.Go(func() error { return m.WithLock(ctx, item.save) })
//	}
//
// Give a goroutine that must not take the lock again a context of
// [WithoutReentry].
//
// Calls with the same parent return the same context. The lock keeps it until
// parent ends or until Unlock. So during a long hold, a parent that was made
// for one piece of work has to be cancelled afterwards, as every result of
// context.WithCancel has to be. A nil parent counts as context.Background.
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
	h.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	key := contextKey(parent)
	if c := l.contexts[key]; c != nil && h.lost == nil {
		return c.Context
	}
	outer, _ := parent.Value(h.m.key).(*heldIn)
	ctx, cancel := context.WithCancelCause(parent)
	ctx = context.WithValue(ctx, h.m.key, &heldIn{lock: l, outer: outer})
	switch {
	case l.unlocked:
		cancel(l.notHeld())
	case h.lost != nil:
		cancel(h.lost)
	default:
		l.keep(key, parent, &lockContext{Context: ctx, cancel: cancel})
	}
	return ctx
}

// keep adds a context to the contexts that the Lock cancels when it ends. If
// the parent of the context ends first, the context has ended, too, and the
// Lock forgets it. keep is called with mu held.
func (l *Lock) keep(key any, parent context.Context, c *lockContext) {
	if parent.Done() != nil {
		c.stop = context.AfterFunc(parent, func() { l.forget(key) })
	}
	if l.contexts == nil {
		l.contexts = make(map[any]*lockContext)
	}
	l.contexts[key] = c
}

// reenter takes a lock again if ctx says that its caller holds the lock. If ctx
// does not say that, reenter returns neither a Lock nor an error.
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
			return nil, newAttempt(m, mode).interrupted(ctx)
		}
		if l, err := in.lock.reenter(mode); l != nil || err != nil {
			return l, err
		}
	}
	return nil, nil
}

// state returns whether the Lock is held, which means that it is not unlocked.
// If the Lock was lost, state also returns the loss, even after an Unlock that
// followed the loss.
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
