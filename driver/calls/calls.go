// Package calls makes calls of client libraries that know no context. It helps
// authors of drivers and is no part of the contract.
package calls

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Group is a group of calls of a client library whose functions take no context.
// It bounds how many of them run at once, those included that no caller waits for
// any more. A session has one Group, and waits for it in Close (rule 11).
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

// Wait returns when no call and no clean-up runs. A call that begins meanwhile
// comes after it. If ctx ends first, Wait returns the error of ctx.
func (g *Group) Wait(ctx context.Context) error {
	if err := g.slots.Acquire(ctx, g.limit); err != nil {
		return err
	}
	g.slots.Release(g.limit)
	return nil
}

// Do runs call on a goroutine of its own and returns its result. If ctx ends
// first, Do returns the error of ctx at once.
//
// If call had begun by then, it goes on, and its outcome is not known yet. When
// it returns, late is called with its result, on the same goroutine, to undo what
// came too late: for example to remove the node that a create has made. The
// result goes either to the caller or to late, never to both. A nil late drops it.
//
// While as many calls run as g allows, Do waits for one of them to end. If ctx
// ends before call has begun, neither call nor late is called. A late clean-up
// counts as a part of its call.
//
// Both functions have to return at some time: the client library needs a time
// limit of its own. A panic in them ends the process, as in any other goroutine.
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
