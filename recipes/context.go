package recipes

import (
	"context"
	"fmt"
	"reflect"
)

// Goroutines have no identity in Go. So a holder is recognised by a context
// that [Lock.Context] has returned.

// holdsKey is the key of the value that a context of [Lock.Context] carries.
// There is one key for each client and lock's name.
type holdsKey struct {
	client *Client
	name   string
}

// heldIn is the value that a context of [Lock.Context] has under a holdsKey. It
// holds the Lock whose method Context has made the context. If the parent
// context has a value under the same key, too, heldIn also holds that value:
// the parent then belongs to another Lock of the same name.
type heldIn struct {
	lock  *Lock
	outer *heldIn
}

// lockContext is a context that a Lock has to cancel. A Lock keeps one for each
// parent. So a caller may ask for a context of the same parent again and again
// during a long hold, and the memory does not grow.
type lockContext struct {
	context.Context
	cancel context.CancelCauseFunc
	stop   func() bool // stops waiting for the parent to end
}

func (c *lockContext) end(cause error) {
	if c.stop != nil {
		c.stop()
	}
	c.cancel(cause)
}

// contextKey returns the key under which a Lock keeps the context of a parent:
// the parent itself, or a new key if the parent is not comparable.
func contextKey(parent context.Context) any {
	if reflect.ValueOf(parent).Comparable() {
		return parent
	}
	return new(byte)
}

// WithoutReentry returns a child of ctx with which no lock is taken again: a
// call of Lock joins the queue and waits, even for the lock that ctx belongs
// to. It is for goroutines that must not hold a lock together with the
// goroutine that started them, or with each other.
//
// Otherwise the child is like ctx. A context of [Lock.Context] ends with its
// lock, so a goroutine that waits for that lock needs context.WithoutCancel,
// too. If [Lock.Context] is given the child, it returns a context with which
// that Lock is taken again. A nil ctx counts as context.Background.
//
// If a goroutine waits for a lock, and the holder of the lock waits for the
// goroutine, both wait for ever. Use TryLock or a deadline where that can
// happen.
func WithoutReentry(ctx context.Context) context.Context {
	if ctx == nil {
		ctx = context.Background()
	}
	return outside{ctx}
}

// outside is the context that WithoutReentry returns. It hides which Locks its
// parent belongs to, so a call with it takes none of these Locks again.
type outside struct{ context.Context }

func (c outside) Value(key any) any {
	if _, ok := key.(holdsKey); ok {
		return nil
	}
	return c.Context.Value(key)
}

func (c outside) String() string { return fmt.Sprintf("%v.WithoutReentry", c.Context) }
