package majority

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
)

// Lock is a held [Mutex]. It is held until Unlock, or until too few stores hold
// the lock. A Lock is safe for concurrent use.
type Lock struct {
	locks    []*dlock.Lock // by store; nil where the lock is not held
	first    *dlock.Lock   // the one that other callers wait for
	contexts sync.Map      // live contexts by parent: any to *child
}

type child struct {
	context.Context
	cancel context.CancelCauseFunc
}

func newLock(locks []*dlock.Lock, first *dlock.Lock) *Lock {
	l := &Lock{locks: locks, first: first}
	for _, one := range locks {
		if one != nil {
			context.AfterFunc(one.Context(context.Background()), l.check)
		}
	}
	return l
}

// All returns the Locks in the order of the clients, and nil for each store in
// which the lock is not held. Don't unlock them one by one.
func (l *Lock) All() []*dlock.Lock { return slices.Clone(l.locks) }

// Tokens returns the fencing tokens in the order of the clients, with 0 for each
// store in which the lock is not held.
func (l *Lock) Tokens() []int64 {
	var tokens []int64
	for _, one := range l.locks {
		tokens = append(tokens, one.Token())
	}
	return tokens
}

// Err returns nil while the lock is held in a majority of the stores. Otherwise
// the error matches the errors of [dlock.Lock.Err] of all locks that are not held:
// dlock.ErrLost after a loss, and dlock.ErrNotHeld after Unlock.
func (l *Lock) Err() error {
	errs := make([]error, len(l.locks))
	for i, one := range l.locks {
		if one != nil {
			errs[i] = one.Err()
		}
	}
	return l.join(errs)
}

// Context returns a child of parent that is cancelled when too few stores hold the
// lock, because of a loss or of Unlock. Its context.Cause then matches dlock.ErrLost
// or dlock.ErrNotHeld. Run the work that the lock protects under this context. Calls
// with it re-enter no lock. A nil parent counts as context.Background. Calls with
// the same parent share a context, which is kept as by [dlock.Lock.Context].
func (l *Lock) Context(parent context.Context) context.Context {
	if parent == nil {
		parent = context.Background()
	}
	var key any = parent
	if !reflect.ValueOf(parent).Comparable() {
		key = new(byte)
	}
	if c, known := l.contexts.Load(key); known {
		return c.(*child)
	}
	ctx, cancel := context.WithCancelCause(parent)
	c := &child{ctx, cancel}
	if other, known := l.contexts.LoadOrStore(key, c); known {
		cancel(nil)
		return other.(*child)
	}
	context.AfterFunc(ctx, func() { l.contexts.Delete(key) })
	if err := l.Err(); err != nil {
		cancel(err)
	}
	return c
}

// check cancels the contexts once too few stores hold the lock.
func (l *Lock) check() {
	if err := l.Err(); err != nil {
		l.endContexts(err)
	}
}

func (l *Lock) endContexts(cause error) {
	l.contexts.Range(func(_, c any) bool {
		c.(*child).cancel(cause)
		return true
	})
}

// Unlock unlocks the lock in all stores: last in the one whose queue other callers
// wait in, at the same time in the others. It blocks as [dlock.Lock.Unlock] does.
//
// The error matches those of each Unlock that failed. It does not tell of a loss in
// some stores if the lock was held to the end in a majority. Whatever Unlock
// returns, the lock is no longer held and its contexts are cancelled. Hooks run on
// goroutines of Unlock, where a panic ends the program.
func (l *Lock) Unlock() error {
	l.endContexts(cmp.Or(l.Err(), dlock.ErrNotHeld)) // before others can hold the lock
	errs := make([]error, len(l.locks))
	var others errgroup.Group
	for i, one := range l.locks {
		if one != nil && one != l.first {
			others.Go(func() error {
				errs[i] = one.Unlock()
				return nil
			})
		}
	}
	unlocked := make(chan struct{})
	go func() {
		defer close(unlocked)
		_ = others.Wait() // errs has all errors; Wait would return only one
	}()
	await(unlocked, lingerFor) // wait only briefly, so that a silent store does not delay the next holder
	if i := slices.Index(l.locks, l.first); i >= 0 {
		errs[i] = l.first.Unlock()
	}
	<-unlocked
	return l.join(errs)
}

// join combines the errors of the locks. While a majority is held, it leaves out
// that other locks are not.
func (l *Lock) join(errs []error) error {
	held, others := 0, slices.Clone(errs)
	for i, err := range errs {
		switch {
		case errors.Is(err, dlock.ErrLost), errors.Is(err, dlock.ErrNotHeld):
			others[i] = nil
		case l.locks[i] != nil:
			held++
		}
	}
	if held >= majorityOf(len(l.locks)) {
		return join(others)
	}
	return join(errs)
}

// String describes the lock in each store on one line, as [dlock.Lock.String] does.
func (l *Lock) String() string {
	var lines []string
	for _, one := range l.locks {
		lines = append(lines, one.String())
	}
	return strings.Join(lines, "; ")
}

// GoString returns the result of String as "majority.Lock(...)".
func (l *Lock) GoString() string { return "majority.Lock(" + l.String() + ")" }

// join combines the errors of the stores into one that matches what each of them
// matches, or nil if there are none.
func join(errs []error) (all error) {
	for i, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = fmt.Errorf("store %d: %w", i+1, err)
		default:
			all = fmt.Errorf("%w; store %d: %w", all, i+1, err)
		}
	}
	return all
}
