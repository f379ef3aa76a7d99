package recipes

import (
	"context"
	"errors"
	"fmt"
)

// Goroutines have no identity in Go. So a holder is recognised by a context
// that [Lock.Context] has returned.

// holdsKey is the key of the value that a context of [Lock.Context] carries.
type holdsKey struct {
	client *Client
	name   string
}

// heldIn is the value under a holdsKey. outer is the value of the parent
// context, if that belongs to another Lock of the same name.
type heldIn struct {
	lock  *Lock
	outer *heldIn
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

// outside hides which Locks its parent belongs to.
type outside struct{ context.Context }

func (c outside) Value(key any) any {
	if _, ok := key.(holdsKey); ok {
		return nil
	}
	return c.Context.Value(key)
}

func (c outside) String() string { return fmt.Sprintf("%v.WithoutReentry", c.Context) }

// reenter takes a lock again if ctx belongs to a Lock that is held. Otherwise
// it returns neither a Lock nor an error.
func (q *queue) reenter(ctx context.Context, w *want) (*Lock, error) {
	in, _ := ctx.Value(q.key).(*heldIn)
	for ; in != nil; in = in.outer {
		lost, held := in.lock.state()
		if lost != nil {
			return nil, lost
		}
		if !held {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, newCall(q, w).interrupted(ctx)
		}
		if l, err := in.lock.lockAgain(w); l != nil || err != nil {
			return l, err
		}
	}
	return nil, nil
}

// state reports whether the Lock is not unlocked, and how it was lost, even if
// it was unlocked after that.
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

// lockAgain returns another Lock of the same hold, without a request. If l is
// unlocked, it returns neither a Lock nor an error.
func (l *Lock) lockAgain(w *want) (*Lock, error) {
	h := l.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.lost != nil:
		return nil, h.lost
	case l.unlocked:
		return nil, nil
	case w.exclusive && !h.exclusive():
		return nil, lockError(h.queue.name, ErrUpgrade)
	}
	return h.addLock(w.exclusive), nil
}
