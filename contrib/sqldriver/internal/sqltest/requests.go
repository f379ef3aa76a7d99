package sqltest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
)

// Requests intercepts the store requests of one session, so that tests can
// lose, delay or count them.
type Requests struct {
	sqlstore.Store // sends the requests
	interceptor    atomic.Pointer[sender]
}

// A sender handles one intercepted request. It may call send to send the
// request to a store, or return without doing so.
type sender func(ctx context.Context, method string, send func(context.Context, sqlstore.Store) error) error

// Intercepted wraps st so that the returned Requests can intercept its
// requests. The session must be begun with the returned store.
func Intercepted(st sqlstore.Store) (*Requests, session.Store) {
	r := &Requests{Store: st}
	if n, ok := st.(session.Notifier); ok {
		return r, notifier{r, n}
	}
	return r, r
}

// notifier adds the methods of session.Notifier.
type notifier struct {
	*Requests
	from session.Notifier
}

// Subscribe implements session.Notifier.
func (n notifier) Subscribe(ctx context.Context, q session.Query) (session.Snapshot, error) {
	return ask(ctx, n.Requests, "Look", func(ctx context.Context, _ sqlstore.Store) (session.Snapshot, error) { return n.from.Subscribe(ctx, q) })
}

// Listening implements session.Notifier.
func (n notifier) Listening(queue string, whole bool) bool { return n.from.Listening(queue, whole) }

// Intercept makes each later request call f in its place. f may call send to
// send the request. method is Beat, Look, List for the nodes of one queue, or the
// kind of a change.
func (r *Requests) Intercept(f func(ctx context.Context, method string, send func(context.Context) error) error) {
	r.intercept(func(ctx context.Context, method string, send func(context.Context, sqlstore.Store) error) error {
		return f(ctx, method, func(ctx context.Context) error { return send(ctx, r.Store) })
	})
}

func (r *Requests) intercept(f sender) { r.interceptor.Store(&f) }

var methods = map[faults.Op]string{faults.OpCreate: "Create", faults.OpList: "List", faults.OpDelete: "Delete", faults.OpReplace: "Replace", faults.OpSetValue: "SetValue"}

// interceptNext calls f instead of sending the next request for op.
func (r *Requests) interceptNext(op faults.Op, f sender) {
	var done atomic.Bool
	r.intercept(func(ctx context.Context, method string, send func(context.Context, sqlstore.Store) error) error {
		if method == methods[op] && done.CompareAndSwap(false, true) {
			return f(ctx, method, send)
		}
		return send(ctx, r.Store)
	})
}

var errLost = fmt.Errorf("%w: %w", driver.ErrUnavailable, io.ErrUnexpectedEOF)

// Lose loses the next request for op or, if reply is true, delivers it and
// loses only its reply.
func (r *Requests) Lose(op faults.Op, reply bool) {
	r.interceptNext(op, func(ctx context.Context, _ string, send func(context.Context, sqlstore.Store) error) error {
		if reply {
			if err := send(ctx, r.Store); err != nil {
				return err
			}
		}
		return errLost
	})
}

// Hold delays the next request for op until arrive is called. The session gets
// the error of a broken connection at once. The delayed request uses the store
// returned by late, because the session may have closed its own.
func (r *Requests) Hold(op faults.Op, late func() sqlstore.Store) (arrive func()) {
	held := make(chan func(context.Context, sqlstore.Store) error, 1)
	r.interceptNext(op, func(_ context.Context, _ string, send func(context.Context, sqlstore.Store) error) error {
		held <- send
		return errLost
	})
	return func() {
		select {
		case send := <-held:
			st := late()
			defer st.Close()
			_ = send(context.Background(), st) // the server may refuse the request
		default:
		}
	}
}

func (r *Requests) request(ctx context.Context, method string, send func(context.Context, sqlstore.Store) error) error {
	if f := r.interceptor.Load(); f != nil {
		return (*f)(ctx, method, send)
	}
	return send(ctx, r.Store)
}

// ask is like request but returns a result. After an error it returns the zero
// value, because a held request may still write its result.
func ask[T any](ctx context.Context, r *Requests, method string, send func(context.Context, sqlstore.Store) (T, error)) (T, error) {
	var result T
	err := r.request(ctx, method, func(ctx context.Context, st sqlstore.Store) (err error) {
		result, err = send(ctx, st)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return result, nil
}

// Beat implements session.Store.
func (r *Requests) Beat(ctx context.Context) (time.Duration, error) {
	return ask(ctx, r, "Beat", func(ctx context.Context, st sqlstore.Store) (time.Duration, error) { return st.Beat(ctx) })
}

var kinds = map[session.Kind]string{session.Create: "Create", session.Delete: "Delete", session.Replace: "Replace", session.Remove: "Remove", session.SetValue: "SetValue"}

// Do implements session.Store.
func (r *Requests) Do(ctx context.Context, c session.Change) (session.Result, error) {
	return ask(ctx, r, kinds[c.Kind], func(ctx context.Context, st sqlstore.Store) (session.Result, error) { return st.Do(ctx, c) })
}

// Look implements session.Store.
func (r *Requests) Look(ctx context.Context, queries []session.Query) ([]session.Snapshot, error) {
	method := "Look"
	if len(queries) == 1 && queries[0].Names == nil && queries[0].Known == 0 {
		method = "List"
	}
	return ask(ctx, r, method, func(ctx context.Context, st sqlstore.Store) ([]session.Snapshot, error) { return st.Look(ctx, queries) })
}

// Counter counts the requests of a session and checks that each takes one round
// trip.
type Counter struct {
	RoundTrips func() int // round trips of the session so far

	mu     sync.Mutex
	sent   map[string]int // by method, since Reset
	before int            // round trips until Reset
}

// Count counts a request and sends it. Pass it to [Requests.Intercept].
func (c *Counter) Count(ctx context.Context, method string, send func(context.Context) error) error {
	c.mu.Lock()
	if c.sent == nil {
		c.sent = make(map[string]int)
	}
	c.sent[method]++
	c.mu.Unlock()
	return send(ctx)
}

// Reset forgets the requests and round trips counted so far.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.sent)
	c.before = c.RoundTrips()
}

// Expect returns an error unless the requests since Reset are those in want, by
// method, and each took one round trip.
func (c *Counter) Expect(want map[string]int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for _, n := range c.sent {
		total += n
	}
	if n := c.RoundTrips() - c.before; !maps.Equal(c.sent, want) || n != total {
		return fmt.Errorf("the session sent %v in %d round trips, want %v", c.sent, n, want)
	}
	return nil
}
