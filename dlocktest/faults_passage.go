package dlocktest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// A call is a request whose caller waits, while a goroutine carries it to the store and back. He
// may give up before it is back; the request cannot be called back then.
type call[T any] struct {
	r     Request
	ctx   context.Context // of the caller
	done  <-chan struct{} // closes when the session ends; nil for a Connect
	spawn func(carry func()) bool

	// carry returns what the caller gets, and whether the store has done what the request asks
	// for, which it may have done although the caller gets an error.
	carry func() (v T, done bool, err error)
	// late gets what the store has done and the caller does not know of. It may be nil.
	late func(T)
}

type reply[T any] struct {
	v   T
	err error
}

func (c call[T]) wait() (v T, err error) {
	replies := make(chan reply[T], 1)
	var settled atomic.Bool // somebody has decided what the caller gets
	ok := c.spawn(func() {
		v, done, err := c.carry()
		if settled.CompareAndSwap(false, true) {
			replies <- reply[T]{v, err}
			done = done && err != nil
		}
		if done && c.late != nil {
			c.late(v)
		}
	})
	if !ok {
		return v, c.r.failed(driver.ErrSessionEnded)
	}
	select {
	case r := <-replies:
		return r.v, r.err
	case <-c.ctx.Done():
		err = c.r.failed(c.ctx.Err())
	case <-c.done:
		err = c.r.failed(driver.ErrSessionEnded)
	}
	if settled.CompareAndSwap(false, true) {
		return v, err
	}
	r := <-replies
	return r.v, r.err
}

// meet has decide say what becomes of something on its way, and waits as long as that takes. An
// error says that it does not arrive.
func (f *Faults) meet(ctx context.Context, r Request) (Fault, error) {
	fault := f.decide(ctx, r)
	f.tally.add(r, fault)
	switch {
	case !pause(ctx, fault.Delay):
		return fault, r.failed(ctx.Err())
	case !fault.Lose:
		return fault, nil
	case fault.Err != nil:
		return fault, r.failed(fault.Err)
	}
	return fault, r.failed(errLost)
}

var errLost = fmt.Errorf("%w: lost on its way", driver.ErrUnavailable)

// pause returns false if ctx has ended by then.
func pause(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
