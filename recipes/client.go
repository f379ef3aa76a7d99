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
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

const (
	closeTimeout = 5 * time.Second
	// sessionsTimeout limits how long Close waits for the store to end the
	// sessions. Drivers may need several seconds.
	sessionsTimeout = 15 * time.Second
	// giveUpTimeout is how long a call that gives up waits for Connect's error.
	giveUpTimeout = 50 * time.Millisecond
)

// Client is a client of one store. It connects on first use, and again after
// its session has ended. An attempt to connect lasts up to 30 s, even if the
// call that began it gives up, and later calls share it. A lock is bound to the
// session in which it was granted.
//
// One Client can serve a whole program. It is safe for concurrent use and must
// not be copied. Get one from dlock.Open or [NewClient], and end it with
// Shutdown or Close.
type Client struct {
	_         noCopy
	connector driver.Connector
	options   options

	live    atomic.Pointer[session] // the latest session; nil before the first
	silent  atomic.Bool             // whether logSilence has logged its only warning
	dialing dialing

	draining chan struct{} // closed when Shutdown or Close begins
	done     chan struct{} // closed when Close begins
	calls    *calls
	reports  *calls // reports of losses
	holds    *calls // holds that Shutdown waits for

	warned      sync.Map // names of semaphores that warnOfUnits has logged
	entryClient entry.Client

	mu       sync.Mutex
	sessions map[*session]struct{} // sessions that may still exist in the store
	begun    chan struct{}         // closed when the next session or Close begins
	closing  bool
	finished chan struct{}
	result   error // result of Close; set before finished closes
}

// NewClient returns a client that connects through c. It does no I/O.
func NewClient(c driver.Connector, opts ...Option) *Client {
	o := defaults().with(opts)
	client := &Client{
		connector: c,
		options:   o,
		dialing:   dialing{pace: pace{Retries: entry.Retries{New: o.backOff}}},
		draining:  make(chan struct{}),
		done:      make(chan struct{}),
		calls:     newCalls(),
		reports:   newCalls(),
		holds:     newCalls(),
		sessions:  make(map[*session]struct{}),
		begun:     make(chan struct{}),
		finished:  make(chan struct{}),
	}
	client.entryClient = entry.Client{Go: client.spawn, Draining: client.draining, BackOff: o.backOff, Logger: o.logger}
	return client
}

// Ping checks that the store can be reached, and connects if necessary.
func (c *Client) Ping(ctx context.Context) error {
	if ctx == nil {
		return errors.New("dlock: ping: nil context")
	}
	if err := c.beginRequest(); err != nil {
		return fmt.Errorf("dlock: ping: %w", err)
	}
	defer c.endCall()
	if c.live.Load() == nil {
		defer c.watchSilence().Stop()
	}
	err := c.onSession(ctx, func(s *session) error {
		_, err := s.List(ctx, "dlock-ping") // the queue need not exist
		return err
	})
	if err != nil {
		return fmt.Errorf("dlock: ping: %w", c.requestError(ctx, err))
	}
	return nil
}

// Connected returns nil while the client has a session with the store.
// Otherwise the error says why there is none, and matches
//
//   - [ErrClosed] once Shutdown or Close has begun,
//   - the error of the last attempt to connect, if that has failed,
//   - driver.ErrSessionEnded if a session has ended, without an attempt since,
//   - none of these before the first attempt.
//
// Connected does no I/O, unlike [Client.Ping].
func (c *Client) Connected() error {
	err, last := c.unreached(), c.live.Load()
	switch {
	case c.drains():
		err = ErrClosed
	case c.current() != nil:
		return nil
	case err == nil && last != nil:
		err = last.Err()
	case err == nil:
		err = errNotYet
	}
	return fmt.Errorf("dlock: not connected: %w", err)
}

var errNotYet = errors.New("no call has connected yet")

// requestError explains a failed call such as Ping. If ctx ended while the
// client could not connect, the error says why.
func (c *Client) requestError(ctx context.Context, err error) error {
	switch last := c.unreached(); {
	case ctx.Err() != nil && last != nil:
		err = fmt.Errorf("%w (last error: %w)", entry.WithCause(ctx, ctx.Err()), last)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, driver.ErrSessionEnded):
		err = unavailable(err)
	}
	return c.closedOr(entry.WithCause(ctx, err))
}

// String describes the client on one line: its session, server and session
// timeout, or why it has no session. It does no I/O.
func (c *Client) String() string {
	if c.closedOr(nil) != nil {
		return "closed"
	}
	s := c.current()
	if s == nil {
		return "not connected"
	}
	i := driver.Inspect(s.ofDriver()).Describe()
	if i.ID == "" {
		return "connected"
	}
	return fmt.Sprintf("session %s, server %s, timeout %v", printable(i.ID), printable(i.Server), i.Timeout)
}

// GoString describes the client as String does, for the verb %#v.
func (c *Client) GoString() string { return "dlock.Client(" + c.String() + ")" }

// Close ends the client and its locks, without waiting for holders as
// [Client.Shutdown] does. Calls in flight return [ErrClosed], and the Lost
// channel of every lock closes. Close then ends the client's sessions in the
// store, which removes their nodes. It waits for at most 20 s.
//
// If the store cannot be reached, the error matches driver.ErrUnavailable, and
// says how long the nodes may stay and block other clients. Further calls
// return the result of the first.
func (c *Client) Close() error {
	if c.beginClose() {
		c.result = c.closeSessions()
		close(c.finished)
	}
	<-c.finished
	return c.result
}

func (c *Client) beginClose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.closing = true
	c.drain()
	close(c.done)
	close(c.begun)
	c.calls.close()
	return true
}

func (c *Client) closeSessions() error {
	all := c.endSessions()
	c.reports.close()
	limit := time.NewTimer(closeTimeout)
	defer limit.Stop()
	if !c.calls.drain(limit.C) || !c.reports.drain(limit.C) {
		all = append(all, fmt.Errorf("dlock: close: some calls or hooks are still in flight after %v", closeTimeout))
	}
	return join(all...)
}

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

// beginCall registers a call for Close to wait for. If it returns nil, the
// caller must call endCall.
func (c *Client) beginCall() error {
	if !c.calls.begin() {
		return ErrClosed
	}
	return nil
}

// drains reports whether Shutdown or Close has begun.
func (c *Client) drains() bool {
	select {
	case <-c.draining:
		return true
	default:
		return false
	}
}

// beginRequest is like beginCall, but also fails once Shutdown has begun.
func (c *Client) beginRequest() error {
	if c.drains() {
		return ErrClosed
	}
	return c.beginCall()
}

func (c *Client) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-c.draining:
	}
}

func (c *Client) endCall() { c.calls.end() }

// spawn runs f on a goroutine that Close waits for. It returns false once Close
// has begun.
func (c *Client) spawn(f func()) bool { return c.calls.spawn(f) }

// report runs f on a new goroutine, so that a slow hook delays no other
// holder's report.
func (c *Client) report(f func()) {
	if !c.reports.spawn(f) {
		f()
	}
}

// closedOr returns err, or ErrClosed once Close has begun and may be its cause.
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

// calls tracks the operations that Close waits for. Unlike a sync.WaitGroup, it
// refuses new ones after close.
type calls struct {
	mu     sync.Mutex
	active int
	closed bool
	ended  chan struct{} // closed when the last call ends after close
}

func newCalls() *calls { return &calls{ended: make(chan struct{})} }

func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.active++
	return true
}

func (c *calls) spawn(f func()) bool {
	if !c.begin() {
		return false
	}
	go func() {
		defer c.end()
		f()
	}()
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

// close makes begin refuse further calls. It must be called only once.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.active == 0 {
		close(c.ended)
	}
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.active
}

func (c *calls) drain(limit <-chan time.Time) bool {
	select {
	case <-c.ended:
		return true
	case <-limit:
		return false
	}
}
