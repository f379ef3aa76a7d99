package majority

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// round is one attempt to take the lock in a majority of the stores. Each slice
// has an element for each store.
type round struct {
	clients []*dlock.Client
	stores  []*dlock.RWMutex
	lock    func(*dlock.RWMutex, context.Context) (*dlock.Lock, error)
	held    []*dlock.Lock
	errs    []error // why held has no Lock; nil until answered
}

// run returns the Lock of a majority of the stores. Without a majority, it
// unlocks what it has taken and returns nil.
func (r *round) run(ctx context.Context) *Lock {
	first := r.takeFirst(ctx)
	if first == nil {
		return nil
	}
	r.takeOthers(first.Context(ctx))
	r.findTwins(ctx)
	r.dropLost()
	l := newLock(r.stores, r.held, first)
	if r.taken() >= r.need() && r.mistake() == nil {
		return l
	}
	unlocked := make(chan struct{})
	go func() {
		defer close(unlocked)
		_ = l.Unlock() // remaining nodes are removed in the background
	}()
	await(unlocked, lingerFor) // wait only briefly, because ctx may have ended
	return nil
}

// takeFirst takes the lock in the first reachable store. Since all calls wait
// in the queue of that store, they seldom block each other.
func (r *round) takeFirst(ctx context.Context) *dlock.Lock {
	for _, i := range r.downLast() {
		r.held[i], r.errs[i] = r.lockWhileConnected(ctx, i)
		if r.held[i] != nil || ctx.Err() != nil || contended(r.errs[i]) {
			return r.held[i]
		}
	}
	return nil
}

// downLast orders the stores: those whose clients have just failed to connect
// come last, so that a call need not wait for them.
func (r *round) downLast() (order []int) {
	var down []int
	for i, c := range r.clients {
		if errors.Is(c.Connected(), dlock.ErrUnavailable) {
			down = append(down, i)
		} else {
			order = append(order, i)
		}
	}
	return append(order, down...)
}

// lockWhileConnected takes the lock in one store. It gives up once the client
// has had no session for reachWithin.
func (r *round) lockWhileConnected(ctx context.Context, store int) (*dlock.Lock, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for seen := time.Now(); ctx.Err() == nil; await(ctx.Done(), reachWithin/4) {
			switch err := r.clients[store].Connected(); {
			case err == nil:
				seen = time.Now()
			case time.Since(seen) >= reachWithin:
				cancel(fmt.Errorf("%w: %w", dlock.ErrUnavailable, err))
			}
		}
	}()
	return r.lock(r.stores[store], ctx)
}

// takeOthers takes the lock in the other stores at once. Its random time limit
// lets one of two rival calls give up first.
func (r *round) takeOthers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, joinFor/2+rand.N(joinFor))
	defer cancel()
	type answer struct {
		store int
		lock  *dlock.Lock
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

// dropLost unlocks the locks that were lost since they were taken. Their tokens
// are useless, because later holders may already have greater ones.
func (r *round) dropLost() {
	for i, l := range r.held {
		if l == nil {
			continue
		}
		if err := l.Err(); err != nil {
			_ = l.Unlock()
			r.held[i], r.errs[i] = nil, fmt.Errorf("%w: %w", dlock.ErrUnavailable, err)
		}
	}
}

func (r *round) need() int { return majorityOf(len(r.stores)) }

func (r *round) taken() (n int) {
	for _, l := range r.held {
		if l != nil {
			n++
		}
	}
	return n
}

// expectsMore reports whether another store may still answer, because its
// client is connected, or at least has not failed to connect.
func (r *round) expectsMore() bool {
	for i, c := range r.clients {
		if r.held[i] == nil && r.errs[i] == nil && !errors.Is(c.Connected(), dlock.ErrUnavailable) {
			return true
		}
	}
	return false
}

var errTwins = errors.New("two clients use one store")

// findTwins finds clients of the same store, whose queues share a record's
// random ID. Undetected twins cannot let two callers hold a majority.
func (r *round) findTwins(ctx context.Context) {
	if !slices.ContainsFunc(r.errs, contended) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lingerFor)
	defer cancel()
	seen := make(map[string]int)
	for i, s := range r.stores {
		if r.held[i] == nil && !contended(r.errs[i]) || r.clients[i].Connected() != nil {
			continue
		}
		queue, _ := s.Queue(ctx)
		for _, c := range queue {
			if twin, known := seen[c.Record.ID]; known && twin != i && c.Record.ID != "" {
				r.errs[i] = errTwins
			}
			seen[c.Record.ID] = i
		}
	}
}

// mistake returns an error that no retry can fix: a closed client, or twins.
func (r *round) mistake() error {
	for _, err := range r.errs {
		if errors.Is(err, dlock.ErrClosed) || errors.Is(err, errTwins) {
			return err
		}
	}
	return nil
}

// isHopeless reports whether a retry would fail, too, because the caller made a
// mistake or because too many stores refuse the request.
func (r *round) isHopeless() bool {
	refused := 0
	for _, err := range r.errs {
		if err != nil && !contended(err) && !errors.Is(err, dlock.ErrUnavailable) {
			refused++
		}
	}
	return r.mistake() != nil || refused > len(r.stores)-r.need()
}

// contended reports whether err is only due to other contenders of the lock.
func contended(err error) bool {
	return !errors.Is(err, dlock.ErrUnavailable) &&
		(errors.Is(err, dlock.ErrLocked) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

func (r *round) failed(ctx context.Context) error {
	err := fmt.Errorf("held in %d of %d stores, and %d are needed: %w", r.taken(), len(r.stores), r.need(), &masked{join(r.errs)})
	switch over, cause := ctx.Err(), context.Cause(ctx); {
	case errors.Is(over, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", dlock.ErrTimeout, err)
	case over != cause:
		err = fmt.Errorf("%w: %w: %w", over, cause, err)
	case over != nil:
		err = fmt.Errorf("%w: %w", over, err)
	}
	return fmt.Errorf("dlock: %v: %w", r.stores[0], err)
}

// masked hides errors that would mislead the caller: expired time limits of the
// round, and losses of locks that were never returned to the caller.
type masked struct{ error }

func (e *masked) Is(target error) bool {
	hidden := []error{dlock.ErrTimeout, dlock.ErrLost, context.DeadlineExceeded, context.Canceled}
	return !slices.Contains(hidden, target) && errors.Is(e.error, target)
}

func (e *masked) As(target any) bool { return errors.As(e.error, target) }
