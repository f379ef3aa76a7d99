package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// A Locker takes one lock. An [RWMutex] takes its lock exclusively, an
// [RWMutex.RLocker] takes it shared, and a [Semaphore.Locker] takes units. The
// methods are like those of RWMutex.
type Locker interface {
	Lock(ctx context.Context) (*Lock, error)
	TryLock(ctx context.Context) (*Lock, error)
	Name() string
}

// RLocker returns a Locker that calls m.RLock and m.TryRLock.
func (m *RWMutex) RLocker() Locker { return rlocker{m} }

type rlocker struct{ *RWMutex }

func (r rlocker) Lock(ctx context.Context) (*Lock, error)    { return r.RLock(ctx) }
func (r rlocker) TryLock(ctx context.Context) (*Lock, error) { return r.TryRLock(ctx) }

// Locks are locks that [LockAll] or [TryLockAll] has taken together. They count
// as held while all of them are held. Locks are safe for concurrent use.
type Locks struct {
	_        noCopy
	all      []*Lock   // in the order of the arguments
	lostOnce sync.Once // creates lost
	lost     chan struct{}
}

// LockAll takes all locks, or none. It takes them in the order of their names,
// so that calls of LockAll cannot deadlock, unless a caller already holds
// another lock.
//
// The deadline of ctx is for the whole call, and [WithTimeout] for each lock.
// If a lock cannot be taken, or an earlier one is lost meanwhile, LockAll
// unlocks those that it has taken. The error matches those of Lock and of each
// [Lock.Unlock] that failed.
//
// The locks may belong to different clients. Two locks of the same name are an
// error if they belong to one client, or if their clients turn out to use one
// store. In different stores they are taken in the order of the arguments, so
// that order should be the same in all programs.
//
// No lock, a nil lock or a lock of a closed client is also an error.
func LockAll(ctx context.Context, lockers ...Locker) (*Locks, error) {
	return lockAll(ctx, lockers, Locker.Lock)
}

// TryLockAll is like [LockAll], but takes each lock with TryLock. If another
// contender holds or waits for one of them, the error matches [ErrLocked].
func TryLockAll(ctx context.Context, lockers ...Locker) (*Locks, error) {
	return lockAll(ctx, lockers, Locker.TryLock)
}

func lockAll(ctx context.Context, lockers []Locker, lock func(Locker, context.Context) (*Lock, error)) (locks *Locks, err error) {
	if err := checkLockers(ctx, lockers); err != nil {
		return nil, err
	}
	held := &Locks{all: make([]*Lock, len(lockers))}
	var taken []*Lock
	defer func() {
		if locks == nil { // also after a panic of a hook
			err = join(append([]error{err}, unlockAll(taken)...)...)
		}
	}()
	inner, cancel := context.WithCancel(ctx) // ends when any lock in taken is lost
	defer cancel()
	for _, i := range byName(lockers) {
		l, err := takeNext(inner, lockers[i], taken, lock)
		if err != nil {
			if ctx.Err() == nil { // a lost lock cancelled inner
				err = mask(err, context.Canceled)
			}
			return nil, err
		}
		held.all[i] = l
		taken = append(taken, l)
		inner = l.Context(inner)
	}
	if held.Err() != nil {
		return nil, nil // the deferred unlockAll reports the losses
	}
	return held, nil
}

// inClient is implemented by this package's lock types. LockAll uses it to find
// a lock that is given twice.
type inClient interface {
	inQueue(ctx context.Context) (*queue, error)
}

func (m *RWMutex) inQueue(ctx context.Context) (*queue, error) {
	if err := m.queue.usable(ctx); err != nil {
		return nil, err
	}
	return m.queue.undrained()
}

func (q *queue) undrained() (*queue, error) {
	if q.client.drains() {
		return nil, lockError(q.name, ErrClosed)
	}
	return q, nil
}

// checkLockers finds mistakes before any lock is taken.
func checkLockers(ctx context.Context, lockers []Locker) error {
	if ctx == nil {
		return errors.New("dlock: lock all: nil context")
	}
	if len(lockers) == 0 {
		return errors.New("dlock: lock all: no locks")
	}
	seen := make(map[any]bool)
	for _, l := range lockers {
		if l == nil {
			return errors.New("dlock: lock all: nil lock")
		}
		key := mapKey(l)
		if c, ok := l.(inClient); ok {
			q, err := c.inQueue(ctx)
			if err != nil {
				return err
			}
			key = holdsKey{client: q.client, name: q.name} // a Semaphore excludes an RWMutex of its name
		}
		if seen[key] {
			return lockError(l.Name(), errTwice)
		}
		seen[key] = true
	}
	return nil
}

var errTwice = errors.New("the lock is given twice")

func byName(lockers []Locker) []int {
	order := make([]int, len(lockers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return strings.Compare(lockers[i].Name(), lockers[j].Name()) })
	return order
}

// takeNext takes one more lock. It fails if the same lock was already taken
// through another client, because the call would then wait for itself.
func takeNext(ctx context.Context, next Locker, taken []*Lock, lock func(Locker, context.Context) (*Lock, error)) (*Lock, error) {
	c, ok := next.(inClient)
	for _, l := range taken {
		if ok && !l.fromNoCall() && l.hold.queue.name == next.Name() {
			q, err := c.inQueue(ctx)
			if err != nil {
				return nil, err
			}
			if q.contains(ctx, l) {
				return nil, lockError(q.name, fmt.Errorf("%w: two clients use one store", errTwice))
			}
		}
	}
	return lock(next, ctx)
}

// contains reports whether l's node is in the queue. It compares random IDs,
// because node names are not unique across stores.
func (q *queue) contains(ctx context.Context, l *Lock) bool {
	if q.client.beginCall() != nil {
		return false
	}
	defer q.client.endCall()
	c := Contender{Node: l.Node()}
	err := q.client.onSession(ctx, func(s *session) error { return s.describe(ctx, q.name, &c) })
	return err == nil && c.Record.ID != "" && c.Record.ID == parseRecord(l.hold.entry.Data()).ID
}

// All returns the Locks in the order of the arguments of LockAll.
func (l *Locks) All() []*Lock { return slices.Clone(l.all) }

// Tokens returns the fencing tokens in the order of All.
func (l *Locks) Tokens() []int64 {
	var tokens []int64
	for _, held := range l.all {
		tokens = append(tokens, held.Token())
	}
	return tokens
}

// Unlock unlocks all locks at the same time. The error matches the errors of
// each [Lock.Unlock] that failed. Hooks run on goroutines that Unlock starts,
// so a panic in a hook ends the program.
func (l *Locks) Unlock() error {
	return join(unlockAll(l.all)...)
}

func unlockAll(locks []*Lock) []error {
	errs := make([]error, len(locks))
	var unlocks errgroup.Group
	for i, l := range locks {
		unlocks.Go(func() error {
			errs[i] = l.Unlock()
			return nil
		})
	}
	_ = unlocks.Wait() // all errors are in errs
	return errs
}

// Err returns nil while all locks are held. Otherwise the error matches what
// [Lock.Err] returns for each lock that is not held.
func (l *Locks) Err() error {
	var errs []error
	for _, held := range l.all {
		errs = append(errs, held.Err())
	}
	return join(errs...)
}

// Lost returns a channel that closes when the first of the locks is lost.
// Unlocking a lock does not close it, nor does the loss of a lock that is
// already unlocked.
func (l *Locks) Lost() <-chan struct{} {
	l.lostOnce.Do(func() {
		lost := make(chan struct{})
		l.lost = lost
		var first sync.Once
		for _, held := range l.all {
			ctx := held.Context(context.Background())
			context.AfterFunc(ctx, func() {
				if cause := context.Cause(ctx); errors.Is(cause, ErrLost) && !errors.Is(cause, ErrNotHeld) {
					first.Do(func() { close(lost) })
				}
			})
		}
	})
	return l.lost
}

// Context returns a child of parent that is cancelled when the first of the locks
// is lost or unlocked. Calls with this context re-enter each of the locks, as
// with [Lock.Context], and [FromContext] returns one of them. Each lock keeps a
// context until the parent ends, so cancel parents whose work is done.
func (l *Locks) Context(parent context.Context) context.Context {
	for _, held := range l.all {
		parent = held.Context(parent)
	}
	return parent
}

// String describes the locks on one line, as [Lock.String] does.
func (l *Locks) String() string {
	var lines []string
	for _, held := range l.all {
		lines = append(lines, held.String())
	}
	return strings.Join(lines, "; ")
}

// GoString describes the locks as String does, for the verb %#v.
func (l *Locks) GoString() string { return "dlock.Locks(" + l.String() + ")" }
