package recipes

import (
	"context"
	"maps"
	"reflect"
	"slices"
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
	outer, _ := parent.Value(h.queue.key).(*heldIn)
	ctx, cancel := context.WithCancelCause(parent)
	ctx = context.WithValue(ctx, h.queue.key, &heldIn{lock: l, outer: outer})
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

// keep makes the Lock cancel a context when it ends, unless the parent ends
// first. It is called with mu held.
func (l *Lock) keep(key any, parent context.Context, c *lockContext) {
	if parent.Done() != nil {
		c.stop = context.AfterFunc(parent, func() { l.forget(key) })
	}
	if l.contexts == nil {
		l.contexts = make(map[any]*lockContext)
	}
	l.contexts[key] = c
}

// lockContext is a context that a Lock has to cancel. A Lock keeps one for each
// parent, so that the memory of a long hold does not grow.
type lockContext struct {
	context.Context
	cancel context.CancelCauseFunc
	stop   func() bool // stops waiting for the parent to end
}

func (c *lockContext) cancelWith(cause error) {
	if c.stop != nil {
		c.stop()
	}
	c.cancel(cause)
}

// contextKey returns the parent, or a new key if it is not comparable.
func contextKey(parent context.Context) any {
	if reflect.ValueOf(parent).Comparable() {
		return parent
	}
	return new(byte)
}

// takeContexts is called with mu held.
func (l *Lock) takeContexts() []*lockContext {
	contexts := slices.Collect(maps.Values(l.contexts))
	l.contexts = nil
	return contexts
}

// forget drops the context of a parent that has ended.
func (l *Lock) forget(key any) {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	delete(l.contexts, key)
}
