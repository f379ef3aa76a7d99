package recipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

const (
	// reachWithin is how long a call tries to connect to a store without a
	// session before it tries the next store.
	reachWithin = time.Second
	// joinFor is how long, on average, a call that holds the lock in one store
	// waits for a majority of the stores.
	joinFor = time.Second
	// lingerFor is how long a call that already holds a majority waits for the
	// remaining stores.
	lingerFor = 50 * time.Millisecond
)

// majorityRecipe is the name of this recipe in hooks and logs.
const majorityRecipe = "majority"

// Majority is an exclusive lock in several independent stores. A caller holds
// it while it holds the lock in more than half of the stores. So a Majority
// survives the loss of a minority of the stores with all their data, while a
// lock in a single store does not survive the loss of that store's data. If you
// have an ensemble of ZooKeeper or etcd, use that instead: it does the same
// with fewer requests.
//
// Any two majorities have a store in common, and the lock in that store has one
// holder at a time. The Majority counts as lost as soon as fewer than a
// majority of the leases are valid, by the clocks of this process. The lock in
// a store that has forgotten what it confirmed counts as lost, too, but only
// when this process learns of it. So there can be two holders for a while if
// all stores that both have taken forget the first holder. The two share at
// least one store, and a majority if the first holder has taken all stores.
//
// There is no single fencing token. The resource has to keep the greatest token
// of each store, and refuse a caller if any of [Locks.Tokens] is less than that
// of its store. See package fence.
//
// All calls wait in the queue of the first store that they can reach, and then
// take the lock in the other stores at the same time. So the lock is granted in
// order of arrival, unless stores fail. A Majority is safe for concurrent use.
// On the zero value and nil, every call returns an error that matches
// [ErrClosed].
type Majority struct {
	_       noCopy
	name    string
	stores  []*RWMutex
	options options
	err     error // returned by every call; nil if the Majority is usable
}

// NewMajority returns the lock of the given name in the stores of the clients.
// There must be an odd number of clients, at least three, each of a different
// store. NewMajority does no I/O. All programs should pass the stores in the
// same order, with the most reliable one first. While a client connects, its
// store may be left out: see [Client.Ping].
//
// [WithTimeout] and [WithBackOff] are for the whole call, and default to those
// of the first client. [WithMaxQueue] has no effect.
func NewMajority(name string, clients []*Client, opts ...Option) *Majority {
	m := &Majority{name: name}
	inStore := append(slices.Clone(opts), WithTimeout(0), WithMaxQueue(0))
	for _, c := range clients {
		m.stores = append(m.stores, &RWMutex{queue: newQueue(c.opened(), majorityRecipe, name, inStore)})
	}
	if n := len(clients); n < 3 || n%2 == 0 {
		m.err = lockError(name, fmt.Errorf("a majority needs an odd number of clients, at least 3, not %d", n))
		return m
	}
	m.options = clients[0].opened().options.with(opts)
	return m
}

// Lock waits until it holds the lock in more than half of the stores. Locks.All
// has a Lock for each client, in their order, and nil where the lock is not held.
//
// If too few stores can be reached, Lock retries for as long as [WithBackOff]
// allows. If a store falls silent while Lock waits in its queue, Lock tries the
// next store once the session has ended. The errors are those of
// [RWMutex.Lock]. They match driver.ErrUnavailable if some stores were
// unavailable that could have made a majority. On error no node stays, as after
// an error of RWMutex.Lock.
//
// A context of [Lock.Context] or [Locks.Context] re-enters none of the locks.
// Hooks report on the lock in each store, and run on goroutines of Lock, where a
// panic ends the program.
func (m *Majority) Lock(ctx context.Context) (*Locks, error) {
	ctx, cancel, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	retries := engine.Retries{New: m.options.backOff}
	for {
		r := m.newRound((*RWMutex).Lock)
		if l := r.run(ctx); l != nil {
			return l, nil
		}
		pause, over := r.pause(ctx, &retries)
		if over != nil {
			return nil, over
		}
		m.stores[0].queue.client.sleep(ctx, pause)
	}
}

// TryLock is like Lock, but uses [RWMutex.TryLock] and does not try again. The
// error matches [ErrLocked] if another contender holds or waits for the lock in
// some store. Concurrent calls seldom prevent each other from getting the lock,
// because all of them begin with the same store.
func (m *Majority) TryLock(ctx context.Context) (*Locks, error) {
	ctx, cancel, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	r := m.newRound((*RWMutex).TryLock)
	if l := r.run(ctx); l != nil {
		return l, nil
	}
	return nil, r.failed(ctx)
}

// Name returns the lock's name.
func (m *Majority) Name() string {
	if m.fromNoClient() {
		return ""
	}
	return m.name
}

// String returns the lock's name, quoted if unprintable.
func (m *Majority) String() string {
	if m.fromNoClient() {
		return "no lock"
	}
	return printable(m.name)
}

// GoString returns the result of String as "dlock.Majority(...)".
func (m *Majority) GoString() string { return "dlock.Majority(" + m.String() + ")" }

func (m *Majority) fromNoClient() bool { return m == nil || m.stores == nil && m.err == nil }

// begin checks the arguments, and returns the context of the call.
func (m *Majority) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if m.fromNoClient() {
		return nil, nil, errNoMajority
	}
	if m.err != nil {
		return nil, nil, m.err
	}
	seen := make(map[*Client]bool)
	for _, s := range m.stores {
		q, err := s.inQueue(ctx)
		if err != nil {
			return nil, nil, err
		}
		if seen[q.client] {
			return nil, nil, lockError(m.name, errTwice)
		}
		seen[q.client] = true
	}
	ctx = WithoutReentry(ctx)
	if m.options.timeout > 0 {
		ctx, cancel := context.WithTimeout(ctx, m.options.timeout)
		return ctx, cancel, nil
	}
	return ctx, func() {}, nil
}

var errNoMajority = fmt.Errorf("dlock: this Majority comes from no clients (use NewMajority): %w", ErrClosed)

// need returns how many stores are a majority.
func (m *Majority) need() int { return len(m.stores)/2 + 1 }

// round is one attempt to take the lock in a majority of the stores.
type round struct {
	*Majority
	lock func(*RWMutex, context.Context) (*Lock, error)
	held []*Lock // by store
	errs []error // by store: why held has no Lock; also nil until the store answers
}

func (m *Majority) newRound(lock func(*RWMutex, context.Context) (*Lock, error)) *round {
	return &round{Majority: m, lock: lock, held: make([]*Lock, len(m.stores)), errs: make([]error, len(m.stores))}
}

// run returns the Locks of a majority of the stores. If it cannot get a
// majority, it unlocks those that it has taken and returns nil.
func (r *round) run(ctx context.Context) *Locks {
	first := r.takeFirst(ctx)
	if first == nil {
		return nil
	}
	r.takeOthers(first.Context(ctx))
	r.dropLost()
	twins := r.findTwins(ctx)
	locks := &Locks{all: r.held, need: r.need(), ends: new(sync.Map)}
	if slices.Contains(r.held, first) {
		locks.last = first
	}
	if r.taken() >= locks.need && !twins {
		return locks
	}
	r.giveBack(locks)
	return nil
}

// giveBack unlocks the locks. It does not wait long for a silent store, because
// the context of the call may have ended.
func (r *round) giveBack(locks *Locks) {
	unlocked := make(chan struct{})
	go func() {
		defer close(unlocked)
		_ = locks.Unlock() // nodes that stay for now are removed in the background
	}()
	awaitBriefly(unlocked)
}

// dropLost gives up the locks that were lost meanwhile. The remaining ones were
// thus all held at one moment, so no earlier holder has greater tokens.
func (r *round) dropLost() {
	for i, l := range r.held {
		if l == nil {
			continue
		}
		if err := l.Err(); err != nil {
			_ = l.Unlock()
			r.held[i], r.errs[i] = nil, unavailable(err)
		}
	}
}

// takeFirst takes the lock in the first store that can be reached. Since all
// calls wait in the queue of that store, they seldom block each other by each
// holding some of the stores.
func (r *round) takeFirst(ctx context.Context) *Lock {
	for i, s := range r.stores {
		if r.errs[i] = s.queue.client.reach(ctx); r.errs[i] == nil {
			r.held[i], r.errs[i] = r.lockOnSession(ctx, s)
		}
		if r.held[i] != nil || ctx.Err() != nil || contended(r.errs[i]) {
			return r.held[i]
		}
	}
	return nil
}

// lockOnSession takes the lock on the client's current session. If that session
// ends, it fails instead of waiting for a new one.
func (r *round) lockOnSession(ctx context.Context, m *RWMutex) (*Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := m.queue.client.current()
	if s == nil {
		return nil, unavailable(driver.ErrSessionEnded)
	}
	go func() {
		select {
		case <-s.Done():
			cancel(unavailable(s.Err()))
		case <-ctx.Done():
		}
	}()
	return r.lock(m, ctx)
}

// reach returns an error if there is no session and the client cannot begin one
// within reachWithin.
func (c *Client) reach(ctx context.Context) error {
	if c.current() != nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	err := c.Ping(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return unavailable(err) // even if the last attempt to connect failed for another reason
	}
	return err
}

// takeOthers takes the lock in the other stores, all at the same time. Calls
// may block each other by each holding some of the stores. The time limit is
// random, so that one of them gives up first, and another gets what it needs.
func (r *round) takeOthers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, joinFor/2+rand.N(joinFor))
	defer cancel()
	type answer struct {
		store int
		lock  *Lock
		err   error
	}
	answers := make(chan answer)
	asked := 0
	for i, s := range r.stores {
		if r.held[i] == nil {
			asked++
			r.errs[i] = nil
			go func() {
				l, err := r.lock(s, ctx)
				answers <- answer{i, l, err}
			}()
		}
	}
	for range asked {
		a := <-answers
		r.held[a.store], r.errs[a.store] = a.lock, a.err
		switch {
		case r.taken() < r.need():
		case !r.expectsMore():
			cancel()
		case r.taken() == r.need():
			defer time.AfterFunc(lingerFor, cancel).Stop()
		}
	}
}

func (r *round) taken() (n int) {
	for _, l := range r.held {
		if l != nil {
			n++
		}
	}
	return n
}

// expectsMore reports whether another store may still answer. A store may if
// its attempt to take the lock has no result yet and its client is connected,
// or at least has not failed to connect.
func (r *round) expectsMore() bool {
	for i, s := range r.stores {
		c := s.queue.client
		if r.held[i] == nil && r.errs[i] == nil && (c.current() != nil || c.unreached() == nil) {
			return true
		}
	}
	return false
}

// findTwins reports whether two clients use the same store. Such twins block
// each other, because each contends for the same lock. The check is best
// effort: undetected twins cost availability, but two majorities still have a
// store in common.
func (r *round) findTwins(ctx context.Context) (found bool) {
	ctx, cancel := context.WithTimeout(ctx, lingerFor)
	defer cancel()
	for i, s := range r.stores {
		if r.held[i] != nil || !contended(r.errs[i]) || s.queue.client.current() == nil {
			continue
		}
		if slices.ContainsFunc(r.held, func(l *Lock) bool { return l != nil && s.queue.contains(ctx, l) }) {
			r.errs[i] = fmt.Errorf("%w: two clients use one store", errTwice)
			found = true
		}
	}
	return found
}

// contended reports whether err only means that other contenders hold or wait
// for the lock.
func contended(err error) bool {
	return !errors.Is(err, driver.ErrUnavailable) &&
		(errors.Is(err, ErrLocked) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// pause returns how long to wait before the next round, or the error of the
// call if there is to be no further round.
func (r *round) pause(ctx context.Context, retries *engine.Retries) (pause time.Duration, over error) {
	away, refused := 0, 0
	for i, err := range r.errs {
		switch {
		case r.held[i] != nil, contended(err):
		case errors.Is(err, driver.ErrUnavailable):
			away++
		case errors.Is(err, ErrClosed), errors.Is(err, errTwice):
			return 0, r.failed(ctx)
		case err != nil:
			refused++
		}
	}
	spare := len(r.stores) - r.need()
	switch {
	case ctx.Err() != nil, refused > spare:
		return 0, r.failed(ctx)
	case away+refused <= spare:
		retries.Succeeded()
		return rand.N(joinFor / 4), nil
	}
	if pause = retries.Next(); pause < 0 {
		return 0, r.failed(ctx)
	}
	return pause, nil
}

// failed returns the error of a call that ends without a majority.
func (r *round) failed(ctx context.Context) error {
	var why []error
	for i, err := range r.errs {
		if err != nil {
			why = append(why, fmt.Errorf("store %d: %w", i+1, err))
		}
	}
	err := fmt.Errorf("held in %d of %d stores, and %d are needed: %w", r.taken(), len(r.stores), r.need(),
		mask(join(why...), ErrLost, ErrTimeout, context.DeadlineExceeded, context.Canceled)) // the caller never had a lock, and limits are the round's own
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", engine.WithCause(ctx, ctx.Err()), err)
	}
	return lockError(r.name, err)
}
