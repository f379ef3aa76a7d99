package session

import (
	"context"
	"errors"
	"time"
)

// Observe returns a session that changes nothing, for driver.Observer. It calls
// only the methods Look, Walk, Read and Value, so the store does not know the
// session. Close calls the function end instead of [Store.End].
func Observe(ctx context.Context, store interface {
	Store
	Inspector
}, end func(), c Config) (*Session, error) {
	r := optional[Reader](store)
	if r == nil {
		r = looker{store, store}
	}
	return Connect(ctx, observed{store, r, end}, c)
}

// observed is a Store without the methods that change something.
type observed struct {
	Store
	Reader
	end func()
}

// Begin only makes sure that the store answers.
func (o observed) Begin(ctx context.Context, _ time.Duration) (Begun, error) {
	_, err := LookAt(ctx, o, Query{Queue: "dlock"}) // any queue will do
	return Begun{}, err
}

func (o observed) Beat(ctx context.Context) (time.Duration, error) { return 0, ctx.Err() }

func (o observed) End(context.Context) error {
	o.end()
	return nil
}

func (o observed) Do(context.Context, Change) (Result, error) {
	return Result{}, errors.ErrUnsupported
}

func (o observed) Cancel(context.Context, []Change) error { return nil }
