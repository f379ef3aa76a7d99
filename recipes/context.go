package recipes

import (
	"context"
	"fmt"
	"reflect"
)

// Context returns a child of parent that is cancelled when the lock is lost or
// unlocked. Its context.Cause then matches [ErrLost] or [ErrNotHeld]. Run the
// work that the lock protects under this context.
//
// Calls of Lock or RLock for the same lock and client with this context, or a
// child of it, re-enter the lock: they succeed at once, without a request. Lock
// returns [ErrUpgrade] if the lock is shared.
//
// Goroutines that share the context do not exclude each other, even if each of
// them calls Lock:
//
//	workers, ctx := errgroup.WithContext(lock.Context(ctx))
//	for _, item := range items {
//		// These calls run at the same time.
//		workers.Go(func() error { return m.WithLock(ctx, item.save) })
//	}
//
// To make a goroutine compete for the lock, give it a context of
// [WithoutReentry].
//
// The lock keeps one context per parent until the parent ends or Unlock is
// called, so cancel parents whose work is done. A nil parent counts as
// context.Background.
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
	key := mapKey(parent)
	c := l.contexts[key]
	if c == nil || h.loss != nil {
		c = l.newContext(key, parent)
	}
	if c.held == nil {
		outer, _ := parent.Value(h.queue.key).(*heldIn)
		c.held = &heldContext{c.Context, h.queue.key, heldIn{holder: l, outer: outer}}
	}
	return c.held
}

// FromContext returns the Lock whose [Lock.Context] is ctx or its nearest
// ancestor, such as the Lock that [RWMutex.WithLock] holds while its function
// runs. The Lock may be unlocked or lost by now.
//
// If there is none, or if a context of [WithoutReentry] is nearer, FromContext
// returns nil. A nil Lock behaves like an unlocked one.
func FromContext(ctx context.Context) *Lock {
	if ctx == nil {
		return nil
	}
	if in, ok := ctx.Value(nearest{}).(*heldIn); ok {
		return in.holder
	}
	return nil
}

// nearest is the context key by which FromContext finds a Lock.
type nearest struct{}

// heldContext is what Lock.Context returns. Re-entry and FromContext find the
// Lock through its method Value.
type heldContext struct {
	context.Context
	key any // the holdsKey
	in  heldIn
}

func (c *heldContext) Value(key any) any {
	if key == c.key || key == (nearest{}) {
		return &c.in
	}
	return c.Context.Value(key)
}

func (c *heldContext) String() string {
	return fmt.Sprintf("%v.WithLock(%s)", c.Context, printable(c.in.holder.hold.queue.name))
}

// newContext returns a child of parent that is cancelled when the Lock ends. It
// must be called with hold.mu held.
func (l *lockState) newContext(key any, parent context.Context) *lockContext {
	ctx, cancel := context.WithCancelCause(parent)
	c := &lockContext{Context: ctx, cancel: cancel}
	switch {
	case l.unlocked:
		cancel(l.unlockedError())
	case l.hold.loss != nil:
		cancel(l.hold.loss)
	default:
		if parent.Done() != nil {
			c.unregister = context.AfterFunc(parent, func() {
				l.hold.mu.Lock()
				defer l.hold.mu.Unlock()
				delete(l.contexts, key)
			})
		}
		if l.contexts == nil {
			l.contexts = make(map[any]*lockContext)
		}
		l.contexts[key] = c
	}
	return c
}

// lockContext is a context that ends with its Lock. A Lock keeps one per
// parent, so that a long hold does not leak memory.
type lockContext struct {
	context.Context // the parent of held
	cancel          context.CancelCauseFunc
	unregister      func() bool // undoes context.AfterFunc; nil if the parent never ends

	held *heldContext // what Lock.Context returns; nil before its first call
}

func (c *lockContext) cancelWith(cause error) {
	if c.unregister != nil {
		c.unregister()
	}
	c.cancel(cause)
}

// mapKey returns v as a map key, or a fresh key if v is not comparable.
func mapKey(v any) any {
	if reflect.ValueOf(v).Comparable() {
		return v
	}
	return new(byte)
}
