package hooks

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
)

// Requests is a store that injects faults into the requests of one session, and
// otherwise passes them on. See [Wrap].
type Requests struct {
	store session.Store

	mu     sync.Mutex
	sender sender
	healed chan struct{} // closed when a cut ends; nil without one
	resets int
	delay  time.Duration
}

// A sender handles a request. It may call send to send the request to a store,
// or return without doing so.
type sender func(ctx context.Context, method string, send func(context.Context, session.Store) error) error

// Wrap wraps the store of a session, so that faults can be injected into it.
func Wrap(st session.Store) *Requests { return &Requests{store: st} }

// Unwrap returns the store that was passed to [Wrap].
func (r *Requests) Unwrap() session.Store { return r.store }

// Intercept makes f handle all later requests. f may call send to pass one on.
// The argument method names a method of session.Store, but a Do is named after
// the change, such as Create, and a Look at all nodes of a queue is List.
func (r *Requests) Intercept(f func(ctx context.Context, method string, send func(context.Context) error) error) {
	r.handle(func(ctx context.Context, method string, send func(context.Context, session.Store) error) error {
		return f(ctx, method, func(ctx context.Context) error { return send(ctx, r.store) })
	})
}

func (r *Requests) handle(f sender) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sender = f
}

var methods = map[faults.Op]string{faults.OpCreate: "Create", faults.OpList: "List", faults.OpDelete: "Delete", faults.OpReplace: "Replace", faults.OpSetValue: "SetValue"}

func (r *Requests) next(op faults.Op, f sender) {
	var once sync.Once
	r.handle(func(ctx context.Context, method string, send func(context.Context, session.Store) error) error {
		handle := func(ctx context.Context, _ string, send func(context.Context, session.Store) error) error {
			return send(ctx, r.store)
		}
		if method == methods[op] {
			once.Do(func() { handle = f })
		}
		return handle(ctx, method, send)
	})
}

var errLost = fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF)

// Lose loses the next request for op or, if reply is true, delivers it and
// loses only its reply.
func (r *Requests) Lose(op faults.Op, reply bool) {
	r.next(op, func(ctx context.Context, _ string, send func(context.Context, session.Store) error) error {
		if reply {
			if err := send(ctx, r.store); err != nil {
				return err
			}
		}
		return errLost
	})
}

// Hold delays the next request for op until arrive is called. The session gets
// the error of a broken connection at once. The function late returns the store
// for the delayed request, because the session may have closed its own by then.
func (r *Requests) Hold(op faults.Op, late func() session.Store) (arrive func()) {
	held := make(chan func(context.Context, session.Store) error, 1)
	r.next(op, func(_ context.Context, _ string, send func(context.Context, session.Store) error) error {
		held <- send
		return errLost
	})
	return func() {
		select {
		case send := <-held:
			_ = send(context.Background(), late()) // the store may refuse the request
		default:
		}
	}
}

// Cut loses all requests, and replies that are not delayed, until heal is called.
// A lost request blocks until then or until its time limit. heal is idempotent.
func (r *Requests) Cut() (heal func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	healed := make(chan struct{})
	r.healed = healed
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(healed)
		if r.healed == healed {
			r.healed = nil
		}
	})
}

// Reset loses the replies to all requests in flight.
func (r *Requests) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets++
}

// DelayReplies delays each later reply by d.
func (r *Requests) DelayReplies(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

func (r *Requests) faults() (f sender, healed chan struct{}, resets int, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sender, r.healed, r.resets, r.delay
}

func (r *Requests) request(ctx context.Context, method string, send func(context.Context, session.Store) error) (err error) {
	f, healed, before, delay := r.faults()
	if healed != nil {
		return lose(ctx, healed)
	}
	if f == nil {
		err = send(ctx, r.store)
	} else {
		err = f(ctx, method, send)
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
			return err
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
		}
	}
	_, healed, resets, _ := r.faults()
	switch {
	case healed != nil:
		return lose(ctx, healed)
	case resets != before:
		return errLost
	}
	return err
}

func lose(ctx context.Context, healed chan struct{}) error {
	select {
	case <-healed:
	case <-ctx.Done():
	}
	return errLost
}

// ask is like request but returns a result. After an error it returns the zero
// value, because a held request may still write its result.
func ask[T any](ctx context.Context, r *Requests, method string, send func(context.Context, session.Store) (T, error)) (T, error) {
	var result T
	err := r.request(ctx, method, func(ctx context.Context, st session.Store) (err error) {
		result, err = send(ctx, st)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return result, nil
}
