package calls

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Group limits the number of calls that run at once, including those whose
// callers have given up. A session with a Group calls Wait in its Close, so
// that no call outlives Close: rule 11 of package driver.
//
// A Group is safe for concurrent use.
type Group struct {
	limit int64
	slots *semaphore.Weighted
}

// NewGroup returns a Group that runs at most limit calls at once. It panics if
// limit is less than 1.
func NewGroup(limit int) *Group {
	if limit < 1 {
		panic("calls: NewGroup: the limit is less than 1")
	}
	return &Group{limit: int64(limit), slots: semaphore.NewWeighted(int64(limit))}
}

// Wait waits until no call and no clean-up is running. Calls of Do made
// meanwhile start only after Wait has returned. If ctx ends first, Wait returns
// the error of ctx.
func (g *Group) Wait(ctx context.Context) error {
	if err := g.slots.Acquire(ctx, g.limit); err != nil {
		return err
	}
	g.slots.Release(g.limit)
	return nil
}

// Do runs call on a new goroutine and returns its result. If ctx ends first, Do
// returns the error of ctx at once.
//
// In that case call keeps running, because it cannot be interrupted. When it
// returns, late receives its result, on the same goroutine, and cleans up: it
// might remove a node that call created after Do had returned. Either Do
// returns the result or late receives it, never both. If late is nil, the
// result is dropped.
//
// If the group is already running as many calls as its limit allows, Do waits
// for one of them, including its clean-up. If ctx ends before call has started,
// neither call nor late runs. The error does not say whether call has started,
// so callers should leave all cleaning up to late.
//
// Both functions must return eventually, so the client library needs a time
// limit of its own. A panic in one of them ends the process, as in any other
// goroutine.
func Do[T any](ctx context.Context, g *Group, call func() (T, error), late func(T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := g.slots.Acquire(ctx, 1); err != nil {
		return none, err
	}
	results, abandoned := make(chan result), make(chan struct{})
	go func() {
		defer g.slots.Release(1)
		value, err := call()
		select {
		case results <- result{value, err}:
		case <-abandoned:
			if late != nil {
				late(value, err)
			}
		}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		close(abandoned)
		return none, ctx.Err()
	}
}
