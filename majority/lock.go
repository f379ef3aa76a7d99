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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// Lock is one hold of a [Mutex]. The hold ends with Unlock, or when too few
// stores still have the lock. A Lock is safe for concurrent use.
type Lock struct {
	stores   []*dlock.RWMutex
	tokens   []int64         // by store, as of the grant
	contexts sync.Map        // live contexts: from each parent to its *child
	over     context.Context // ends with the hold
	end      context.CancelFunc
	joins    sync.WaitGroup // calls of rejoin; none begins after the hold

	mu    sync.Mutex    // guards the fields below
	locks []*dlock.Lock // by store; nil where not held
	first *dlock.Lock   // other callers wait in its queue
	ended func(error)   // reports Lost or Released; nil after claimEnd
}

type child struct {
	context.Context
	cancel context.CancelCauseFunc
}

func newLock(stores []*dlock.RWMutex, locks []*dlock.Lock, first *dlock.Lock) *Lock {
	l := &Lock{stores: stores, locks: locks, first: first}
	for _, one := range locks {
		l.tokens = append(l.tokens, one.Token())
	}
	l.over, l.end = context.WithCancel(context.Background())
	return l
}

// recipe is passed to the hooks that report on a Mutex as a whole.
const recipe = "majority"

func report[Info any](ctx context.Context, hook func(context.Context, Info), i Info) {
	if hook != nil {
		hook(ctx, i)
	}
}

// granted runs the Granted hook, and only then watches the locks, so that Lost
// or Released runs after Granted.
func (l *Lock) granted(ctx context.Context, t *recipes.Trace, i recipes.GrantedInfo) {
	returned, since := false, time.Now()
	defer func() {
		l.ended = func(err error) {
			if ctx := context.WithoutCancel(ctx); errors.Is(err, dlock.ErrLost) {
				report(ctx, t.Lost, recipes.LostInfo{Recipe: recipe, Lock: i.Lock, Mode: i.Mode, Granted: i.Mode, Held: time.Since(since), Err: err})
			} else {
				report(ctx, t.Released, recipes.ReleasedInfo{Recipe: recipe, Lock: i.Lock, Mode: i.Mode, Granted: i.Mode, Held: time.Since(since), Err: err})
			}
		}
		l.keep()
		if !returned {
			_ = l.Unlock() // the hook has panicked
		}
	}()
	report(ctx, t.Granted, i)
	returned = true
}

// claimEnd returns the function that reports the end of the hold. Further calls
// return a no-op, so that the end is reported once.
func (l *Lock) claimEnd() func(error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := l.ended
	l.ended = nil
	if ended == nil {
		return func(error) {}
	}
	return ended
}

func (l *Lock) keep() {
	for i, one := range l.All() {
		if one == nil {
			go l.rejoin(i)
		} else {
			l.watch(i, one)
		}
	}
}

func (l *Lock) watch(store int, one *dlock.Lock) {
	context.AfterFunc(one.Context(context.Background()), func() {
		if l.check() == nil && errors.Is(one.Err(), dlock.ErrLost) {
			l.rejoin(store)
		}
	})
}

// check is like Err, but also ends a lost lock's contexts and rejoining.
func (l *Lock) check() error {
	err := l.Err()
	if err != nil {
		l.endContexts(err)
		l.end()
	}
	return err
}

// rejoin takes the lock again in a store without it, so that a long hold
// survives if the stores restart one by one.
func (l *Lock) rejoin(store int) {
	l.mu.Lock()
	if l.over.Err() != nil {
		l.mu.Unlock()
		return
	}
	l.joins.Add(1)
	l.mu.Unlock()
	defer l.joins.Done()
	for {
		await(l.over.Done(), joinFor) // so that short holds send no request
		one, err := l.stores[store].Lock(l.over)
		switch {
		case err == nil && l.adopt(store, one):
			l.watch(store, one)
			return
		case err == nil:
			_ = one.Unlock()
		case !errors.Is(err, dlock.ErrUnavailable):
			return
		}
	}
}

// adopt adds a lock taken by rejoin if a majority of stores confirm their
// locks. Otherwise another caller may have held a majority meanwhile.
func (l *Lock) adopt(store int, one *dlock.Lock) bool {
	confirmed := 0
	for i, other := range l.All() {
		if i != store && other != nil && l.confirms(i, other) {
			confirmed++
		}
	}
	if confirmed < majorityOf(len(l.stores)) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Err() != nil || held(l.locks) != nil {
		return false
	}
	old := l.locks[store]
	if old == l.first {
		l.first = one
	}
	l.locks[store] = one
	_ = old.Unlock() // sends no request, because old is lost
	return true
}

// confirms reports whether the store still has the lock's node.
func (l *Lock) confirms(store int, one *dlock.Lock) bool {
	ctx, cancel := context.WithTimeout(l.over, joinFor)
	defer cancel()
	queue, err := l.stores[store].Queue(ctx)
	return err == nil && slices.ContainsFunc(queue, func(c dlock.Contender) bool {
		return c.Node == one.Node() && (c.Token == one.Token() || c.Token == 0) // zero if the driver does not read nodes
	})
}

// All returns the locks in the order of the clients, with nil for each store in
// which the lock is not held. Do not unlock them one by one. If a store loses
// its lock, or did not grant one at first, the Lock takes it in the background,
// so a later call of All may return a new one.
func (l *Lock) All() []*dlock.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.locks)
}

// Tokens returns the fencing tokens in the order of the clients, with 0 for
// each store that did not take part in the grant. They never change, even if
// the lock is taken again in a store.
func (l *Lock) Tokens() []int64 { return slices.Clone(l.tokens) }

// Err returns nil while the lock is held in a majority of the stores. After
// that, the error matches [dlock.Lock.Err] of each lock that is not held:
// dlock.ErrLost after a loss, and dlock.ErrNotHeld after Unlock.
func (l *Lock) Err() error { return held(l.All()) }

func held(locks []*dlock.Lock) error {
	errs := make([]error, len(locks))
	for i, one := range locks {
		if one != nil {
			errs[i] = one.Err()
		}
	}
	return joinHeld(locks, errs)
}

// Context returns a child of parent that is cancelled when too few stores hold
// the lock, because of a loss or Unlock. Its context.Cause then matches
// dlock.ErrLost or dlock.ErrNotHeld. Run the protected work under it. Calls
// with it re-enter no lock. A nil parent counts as context.Background. Calls
// with the same parent share a context; [dlock.Lock.Context] says for how long.
func (l *Lock) Context(parent context.Context) context.Context {
	if parent == nil {
		parent = context.Background()
	}
	var key any = parent
	if !reflect.ValueOf(parent).Comparable() {
		key = new(byte)
	}
	ctx, cancel := context.WithCancelCause(parent)
	c, known := l.contexts.LoadOrStore(key, &child{ctx, cancel})
	if known {
		cancel(nil)
	} else {
		context.AfterFunc(ctx, func() { l.contexts.Delete(key) })
	}
	if err := l.Err(); err != nil {
		c.(*child).cancel(err)
	}
	return c.(*child)
}

func (l *Lock) endContexts(cause error) {
	l.contexts.Range(func(_, c any) bool {
		c.(*child).cancel(cause)
		return true
	})
}

// Unlock unlocks the lock in all stores at the same time, except that the store
// in whose queue other callers wait comes last. It blocks as
// [dlock.Lock.Unlock] does.
//
// The error matches those of each Unlock that failed. If the lock was held to
// the end in a majority, losses in other stores are no error. In any case, the
// lock is no longer held and its contexts are cancelled. A panic in a hook ends
// the program, because hooks run on new goroutines.
func (l *Lock) Unlock() (err error) {
	ended := l.claimEnd()
	defer func() { ended(err) }()
	l.endContexts(cmp.Or(l.Err(), dlock.ErrNotHeld)) // before others can hold the lock
	l.mu.Lock()                                      // so that no rejoin begins after this
	l.end()
	l.mu.Unlock()
	l.joins.Wait()
	locks := l.All()
	errs := make([]error, len(locks))
	var others errgroup.Group
	for i, one := range locks {
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
		_ = others.Wait() // the errors are in errs
	}()
	await(unlocked, lingerFor) // wait briefly in case a store is silent
	if i := slices.Index(locks, l.first); i >= 0 {
		errs[i] = l.first.Unlock()
	}
	<-unlocked
	return joinHeld(locks, errs)
}

// joinHeld combines the errors of the locks. While a majority is held, it omits
// the errors of locks that are not held.
func joinHeld(locks []*dlock.Lock, errs []error) error {
	held, others := 0, slices.Clone(errs)
	for i, err := range errs {
		switch {
		case errors.Is(err, dlock.ErrLost), errors.Is(err, dlock.ErrNotHeld):
			others[i] = nil
		case locks[i] != nil:
			held++
		}
	}
	if held >= majorityOf(len(locks)) {
		return join(others)
	}
	return join(errs)
}

// String describes the locks on one line, as [dlock.Lock.String] does.
func (l *Lock) String() string {
	var lines []string
	for _, one := range l.All() {
		lines = append(lines, one.String())
	}
	return strings.Join(lines, "; ")
}

// GoString returns the result of String as "majority.Lock(...)".
func (l *Lock) GoString() string { return "majority.Lock(" + l.String() + ")" }

// join combines the errors of the stores into one that matches all of them.
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
