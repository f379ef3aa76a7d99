package recipes

import (
	"context"
	"errors"
	"fmt"
)

// Goroutines have no identity, so a holder that takes its lock again is
// recognised by a context from [Lock.Context].

// holdsKey is the context key by which a call finds the Lock to re-enter. The
// value under the key is a *heldIn.
type holdsKey struct {
	client    *Client
	name      string
	semaphore bool // whether the Lock belongs to a Semaphore
}

// heldIn says which Lock a context belongs to. The field outer says so for the
// parent context, in case holder is unlocked.
type heldIn struct {
	holder *Lock
	outer  *heldIn
}

// WithoutReentry returns a child of ctx that does not re-enter locks: Lock
// joins the queue and waits, even for the lock that ctx belongs to. Use it for
// goroutines that the lock must keep apart from each other, or from the
// goroutine that started them.
//
// The child is otherwise like ctx, but [FromContext] finds no Lock in it. If
// ctx comes from [Lock.Context], it ends with that lock, so a goroutine that
// waits for the lock also needs context.WithoutCancel. Calling [Lock.Context]
// with the child yields a context that re-enters that Lock. A nil ctx counts as
// context.Background.
//
// If a goroutine waits for a lock whose holder waits for the goroutine, both
// wait forever. Use TryLock or a deadline where that can happen.
func WithoutReentry(ctx context.Context) context.Context {
	if ctx == nil {
		ctx = context.Background()
	}
	return outside{ctx}
}

// outside is the context of WithoutReentry, which hides its parent's Locks.
type outside struct{ context.Context }

func (c outside) Value(key any) any {
	switch key.(type) {
	case holdsKey, nearest:
		return nil
	}
	return c.Context.Value(key)
}

func (c outside) String() string { return fmt.Sprintf("%v.WithoutReentry", c.Context) }

// reenter takes the lock again if ctx belongs to a Lock that is held. If there
// is no such Lock, it returns nil, nil.
func (q *queue) reenter(ctx context.Context, w *want) (*Lock, error) {
	in, _ := ctx.Value(q.key).(*heldIn)
	for ; in != nil; in = in.outer {
		lost, held := in.holder.state()
		if lost != nil {
			return nil, lost
		}
		if !held {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, newCall(q, w).interrupted(ctx)
		}
		if l, err := in.holder.lockAgain(w); l != nil || err != nil {
			return l, err
		}
	}
	return nil, nil
}

func (l *Lock) state() (lost error, held bool) {
	l.hold.check()
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	switch {
	case !l.unlocked:
		return l.hold.loss, true
	case errors.Is(l.unlockErr, ErrLost):
		return l.unlockErr, false
	}
	return nil, false
}

// lockAgain returns another Lock of the same hold, without a request. It
// returns nil, nil if l is unlocked.
func (l *Lock) lockAgain(w *want) (*Lock, error) {
	h := l.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.loss != nil:
		return nil, h.loss
	case l.unlocked:
		return nil, nil
	case w.exclusive && !h.exclusive():
		return nil, lockError(h.queue.name, ErrUpgrade)
	}
	return h.addLock(w.exclusive), nil
}
