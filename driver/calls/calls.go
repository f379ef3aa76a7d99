package calls

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Group limits the number of calls that run at once. The limit includes the calls
// whose callers have given up. A session has one Group. Its Close calls Wait, so
// that no call outlives Close: rule 11 of package driver.
//
// A Group is safe for use by many goroutines.
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

// Wait waits until no call and no clean-up runs, and returns nil. A call that
// is given to Do during Wait begins only after Wait has returned. If ctx ends
// first, Wait returns the error of ctx.
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
// If ctx ends while call runs, call goes on, because it cannot be interrupted. When
// call returns, the same goroutine passes the result of call to the function late,
// which cleans up. For example, late removes a node that call has created although
// Do had returned. Either Do returns the result of call or late receives it, never
// both. If late is nil, the result is dropped.
//
// While the group runs as many calls as its limit allows, Do waits until one of
// them ends. A call ends when the function late has returned, if it was called. If
// ctx ends before call has begun, neither call nor late runs. The error does not show
// whether call has begun, and the caller need not know: late cleans up in the one
// case, and there is nothing to clean up in the other. A caller that cleans up by
// itself after an error finds nothing then.
//
// Both functions have to return at some time, so the client library needs a time
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
