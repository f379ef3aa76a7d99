package majority

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

const (
	// A call waits reachWithin for a client to get a session with its store, and
	// then tries the next store.
	reachWithin = time.Second
	// A call that holds the lock in one store waits about joinFor for a majority.
	joinFor = time.Second
	// A call that already has a majority waits lingerFor for the other stores.
	lingerFor = 50 * time.Millisecond
)

// Mutex is an exclusive lock in several independent stores. A caller holds it
// while it holds the lock in more than half of the stores.
//
// All calls wait in the queue of the first store that they can reach, so the
// Mutex is granted in order of arrival, unless stores fail.
//
// A Mutex is safe for concurrent use. Its fields must not be changed after the
// first call.
type Mutex struct {
	// Name is the name of the lock in each store.
	Name string
	// Clients are an odd number of clients, at least three, each of a different
	// store. All programs should list the stores in the same order, with the most
	// reliable one first. WithTimeout and WithMaxQueue of a client have no effect
	// here.
	Clients []*dlock.Client
}

// Lock waits until it holds the lock in more than half of the stores. A store
// whose client is still connecting may be left out, so call [dlock.Client.Ping]
// for each client first.
//
// If too few stores can be reached, Lock retries until ctx ends. Lock waits in
// the queue of one store. If the client loses its session with that store and
// gets no new one within a second, Lock tries the next store.
//
// The error matches those that the stores have returned, and
//
//   - dlock.ErrTimeout after the deadline of ctx,
//   - dlock.ErrUnavailable if the unavailable stores could have completed a
//     majority,
//   - dlock.ErrClosed if one of the clients is closed.
//
// On error no node stays, as after an error of [dlock.RWMutex.Lock]. A ctx of
// [Lock.Context] or [dlock.Lock.Context] does not make Lock re-enter.
//
// The hooks of the first client report on the Mutex as a whole: Started,
// Granted, Failed, Released and Lost, with the Recipe "majority". The hooks of
// each client report on the lock in its store, with the Recipe "member". A
// panic in a hook ends the program, because it happens on another goroutine. If
// the loss in one store ends the hold, Close of that store's client waits for
// the Lost hook of the Mutex.
func (m *Mutex) Lock(ctx context.Context) (*Lock, error) {
	return m.take(ctx, (*dlock.RWMutex).Lock, false)
}

// TryLock is like Lock, but uses [dlock.RWMutex.TryLock] and does not try again.
// The error matches dlock.ErrLocked if another contender holds or waits for the
// lock in some store. Concurrent calls seldom prevent each other from getting the
// lock, because all of them begin with the same store.
func (m *Mutex) TryLock(ctx context.Context) (*Lock, error) {
	return m.take(ctx, (*dlock.RWMutex).TryLock, true)
}

func (m *Mutex) take(ctx context.Context, lock func(*dlock.RWMutex, context.Context) (*dlock.Lock, error), once bool) (*Lock, error) {
	var l *Lock
	ended := make(chan struct{}) // closed after the Granted hook
	defer close(ended)
	stores, err := m.stores(ctx, func(context.Context, recipes.LostInfo) {
		if <-ended; l != nil {
			if err := l.check(); err != nil { // one loss too many
				l.claimEnd()(err)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	began, trace := time.Now(), m.Clients[0].Trace()
	report(ctx, trace.Started, recipes.StartedInfo{Recipe: recipe, Lock: m.Name, Mode: dlock.Exclusive, Try: once})
	l, err = m.repeat(dlock.WithoutReentry(ctx), stores, lock, once)
	if err != nil {
		report(ctx, trace.Failed, recipes.FailedInfo{
			Recipe: recipe, Lock: m.Name, Mode: dlock.Exclusive, Try: once, Waited: time.Since(began), Err: err,
		})
		return nil, err
	}
	l.granted(ctx, trace, recipes.GrantedInfo{Recipe: recipe, Lock: m.Name, Mode: dlock.Exclusive, Try: once, Waited: time.Since(began)})
	return l, nil
}

func (m *Mutex) repeat(ctx context.Context, stores []*dlock.RWMutex, lock func(*dlock.RWMutex, context.Context) (*dlock.Lock, error), once bool) (*Lock, error) {
	for {
		r := &round{m.Clients, stores, lock, make([]*dlock.Lock, len(stores)), make([]error, len(stores))}
		if l := r.run(ctx); l != nil {
			return l, nil
		}
		if once || ctx.Err() != nil || r.isHopeless() {
			return nil, r.failed(ctx)
		}
		if await(ctx.Done(), rand.N(joinFor/4)); ctx.Err() != nil { // another round would not learn why it fails
			return nil, r.failed(ctx)
		}
	}
}

// stores returns the lock in each store, with lost as a Lost hook.
func (m *Mutex) stores(ctx context.Context, lost func(context.Context, recipes.LostInfo)) (stores []*dlock.RWMutex, err error) {
	n := len(m.Clients)
	switch {
	case ctx == nil:
		return nil, errors.New("dlock: majority: nil context")
	case n < 3 || n%2 == 0:
		return nil, fmt.Errorf("dlock: majority: %d clients, want an odd number, at least 3", n)
	}
	seen := make(map[*dlock.Client]bool)
	for i, c := range m.Clients {
		if c == nil || seen[c] {
			return nil, fmt.Errorf("dlock: majority: client %d is nil or given twice", i+1)
		}
		seen[c] = true
		if err := c.Connected(); errors.Is(err, dlock.ErrClosed) {
			return nil, fmt.Errorf("dlock: majority: client %d: %w", i+1, err)
		}
		stores = append(stores, c.RWMutex(m.Name, dlock.WithTimeout(0), dlock.WithMaxQueue(0), recipes.WithRecipe("member"), dlock.WithTrace(&recipes.Trace{Lost: lost})))
	}
	return stores, nil
}

func majorityOf(n int) int { return n/2 + 1 }

func await(done <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
