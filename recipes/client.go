package recipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

const (
	// closeTimeout is how long Close waits for the calls in flight to return.
	closeTimeout = 5 * time.Second
	// sessionsTimeout is how long Close waits for the sessions to end in the
	// store. Drivers need a few seconds for that.
	sessionsTimeout = 15 * time.Second
	// giveUpTimeout is how long a call that gives up waits for work that it has
	// begun: a Connect that it cancels, or the Unlock of a lock that came too late.
	giveUpTimeout = 50 * time.Millisecond
)

// Client is a client of one store. It has one session at a time. It connects on
// first use, and again after a session has ended. An attempt to connect goes on
// for up to 30 s if the call that began it gives up, and later calls share it.
// Each lock is bound to the session on which it was granted.
//
// One Client serves a whole program. It is safe for use by many goroutines and
// must not be copied. Close ends it.
//
// A Client comes from dlock.Open or [NewClient]. The zero value and a nil
// *Client behave like a closed client: a call that needs the store returns an
// error that matches [ErrClosed].
type Client struct {
	_         noCopy
	connector driver.Connector
	options   options

	live    atomic.Pointer[session] // the last session that has begun; nil before the first
	dialing dialing

	done  chan struct{} // closed when Close begins
	calls *calls

	cohorts cohorts
	engine  engine.Client

	mu       sync.Mutex
	sessions map[*session]struct{} // the sessions that the store may still keep
	begun    chan struct{}         // closed when the next session begins, and then replaced
	closing  bool
	finished chan struct{} // closed when Close has returned
	result   error         // what Close returns; set before finished is closed
}

// NewClient returns a client of the store that the connector leads to. It does
// no I/O.
func NewClient(c driver.Connector, opts ...Option) *Client {
	o := defaults().with(opts)
	client := &Client{
		connector: c,
		options:   o,
		dialing:   dialing{pace: pace{Retries: engine.Retries{New: o.backOff}}},
		done:      make(chan struct{}),
		calls:     newCalls(),
		sessions:  make(map[*session]struct{}),
		begun:     make(chan struct{}),
		finished:  make(chan struct{}),
	}
	client.engine = engine.Client{Go: client.spawn, Closed: client.done, BackOff: o.backOff, Logger: o.logger}
	return client
}

// opened returns c, or a closed client if c is nil or the zero value.
func (c *Client) opened() *Client {
	if c == nil || c.done == nil {
		c = NewClient(nil)
		_ = c.Close() // this does no I/O, because the new client has no session
	}
	return c
}

// Ping makes sure that there is a session and that the store answers.
func (c *Client) Ping(ctx context.Context) error {
	c = c.opened()
	if ctx == nil {
		return errors.New("dlock: ping: nil context")
	}
	if err := c.beginCall(); err != nil {
		return fmt.Errorf("dlock: ping: %w", err)
	}
	defer c.endCall()
	err := c.onSession(ctx, func(s *session) error {
		_, err := s.List(ctx, "dlock-ping") // any name will do: the queue need not exist
		return err
	})
	if err != nil {
		return fmt.Errorf("dlock: ping: %w", c.requestError(ctx, err))
	}
	return nil
}

// requestError returns the error of Ping or Queue, which wait for no lock. If
// the deadline of ctx has passed or the session has ended, the store has not
// answered in time, and the result matches driver.ErrUnavailable. After a
// failed attempt to connect, it says why.
func (c *Client) requestError(ctx context.Context, err error) error {
	switch last := c.unreached(); {
	case ctx.Err() != nil && last != nil:
		err = fmt.Errorf("%w (last error: %w)", engine.WithCause(ctx, ctx.Err()), last)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, driver.ErrSessionEnded):
		err = unavailable(err)
	}
	return c.closedOr(engine.WithCause(ctx, err))
}

// String returns one line for people: the client's session, its server and its
// timeout, or why there is none. It may be called at any time and does no I/O.
func (c *Client) String() string {
	c = c.opened()
	if c.closedOr(nil) != nil {
		return "closed"
	}
	s := c.current()
	if s == nil {
		return "not connected"
	}
	i := driver.Describe(s.ofDriver())
	if i.ID == "" {
		return "connected"
	}
	return fmt.Sprintf("session %s, server %s, timeout %v", printable(i.ID), printable(i.Server), i.Timeout)
}

// GoString returns "dlock.Client(...)" with the result of String in the
// brackets.
func (c *Client) GoString() string { return "dlock.Client(" + c.String() + ")" }

// Close ends the client and releases everything that it holds. Calls in flight
// return [ErrClosed], and Lost of every lock closes. Then the client ends its
// session in the store, which removes the nodes. It also ends sessions that
// were lost before, because the store may still keep them. Close waits for all
// this, for 20 s at most.
//
// An error that matches driver.ErrUnavailable means that the store could not be
// reached. The nodes then stay until the session times out in the store, and
// may block other clients until then. The error says how long that takes. A
// second Close returns the result of the first one.
func (c *Client) Close() error {
	c = c.opened()
	if c.beginClose() {
		c.result = c.closeSessions()
		close(c.finished)
	}
	<-c.finished
	return c.result
}

// beginClose makes every later call fail. It returns false after the first
// call.
func (c *Client) beginClose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.closing = true
	close(c.done)
	c.calls.close()
	if a := c.dialing.attempt; a != nil && a.cancel != nil {
		a.cancel(ErrClosed)
	}
	return true
}

func (c *Client) closeSessions() error {
	all := c.endSessions()
	if !c.calls.await(closeTimeout) {
		all = append(all, fmt.Errorf("dlock: close: some calls are still in flight after %v", closeTimeout))
	}
	return join(all...)
}

// endSessions waits until every session has ended here and in the store, or
// could not be ended in the store. The sessions notice by themselves that the
// client is being closed.
func (c *Client) endSessions() (errs []error) {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	limit := time.NewTimer(sessionsTimeout)
	defer limit.Stop()
	for _, s := range all {
		select {
		case <-s.ended:
			if s.endErr != nil {
				errs = append(errs, fmt.Errorf("dlock: close: %w", s.endErr))
			}
		case <-limit.C:
			return append(errs, fmt.Errorf("dlock: close: %w: a session has not ended after %v", driver.ErrUnavailable, sessionsTimeout))
		}
	}
	return errs
}

// beginCall registers a call that Close waits for. After nil, the caller has to
// call endCall.
func (c *Client) beginCall() error {
	if !c.calls.begin() {
		return ErrClosed
	}
	return nil
}

func (c *Client) endCall() { c.calls.end() }

// spawn runs f on a goroutine that Close waits for. Once Close has begun, it
// returns false.
func (c *Client) spawn(f func()) bool {
	if c.beginCall() != nil {
		return false
	}
	go func() {
		defer c.endCall()
		f()
	}()
	return true
}

// closedOr returns ErrClosed if the client was closed, because that explains
// every other error, and otherwise err.
func (c *Client) closedOr(err error) error {
	select {
	case <-c.done:
		return ErrClosed
	default:
		return err
	}
}

func (c *Client) endedBy(cause error) {
	if hook := c.options.trace.SessionEnded; hook != nil {
		hook(context.Background(), SessionEndedInfo{Err: cause})
	}
}

// calls counts what Close has to wait for. After close no call begins.
type calls struct {
	mu     sync.Mutex
	active int
	closed bool
	ended  chan struct{} // closed when closed is set and the last call has ended
}

func newCalls() *calls { return &calls{ended: make(chan struct{})} }

// begin reports whether a call may begin. If so, the caller has to call end.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.active++
	return true
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if c.closed && c.active == 0 {
		close(c.ended)
	}
}

// close must be called only once.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.active == 0 {
		close(c.ended)
	}
}

// await reports whether the last call has ended within the limit.
func (c *calls) await(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-c.ended:
		return true
	case <-t.C:
		return false
	}
}
