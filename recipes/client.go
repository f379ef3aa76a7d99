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

	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

const (
	dialTimeout     = 30 * time.Second      // for one attempt to connect
	closeTimeout    = 5 * time.Second       // for calls in flight to notice a Close
	sessionsTimeout = 15 * time.Second      // for the sessions to end; drivers need a few seconds
	giveUpTimeout   = 50 * time.Millisecond // for work that a call which gives up has begun
)

var (
	errNoConnector = errors.New("the connector is nil")
	errNoSession   = errors.New("the driver has returned neither a session nor an error")
	errNobodyWaits = fmt.Errorf("%w: no call waits for a session any more", driver.ErrUnavailable)
	errDialGivenUp = errors.New("given up, as no call waits for a session any more")
)

// Client is a client of one store. It has one session at a time. It connects on
// first use, and again after a session has ended. Each lock is bound to the
// session on which it was granted.
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

	live    atomic.Pointer[session]
	dialErr atomic.Pointer[error] // of the last attempt to connect; nil if it succeeded
	dials   singleflight.Group
	pace    pace // of dials; only the one dial in flight touches it

	done  chan struct{} // closed when Close begins
	calls *calls

	cohorts cohorts
	engine  engine.Client

	mu         sync.Mutex
	sessions   map[*session]struct{} // those that the store may still keep
	begun      chan struct{}         // closes when the next session begins
	closing    bool
	waiting    int // for the dial in flight
	cancelDial context.CancelCauseFunc
	finished   chan struct{} // closed when Close has returned
	result     error         // of Close
}

// NewClient returns a client of the store that the connector leads to. It does
// no I/O.
func NewClient(c driver.Connector, opts ...Option) *Client {
	o := defaults().with(opts)
	client := &Client{
		connector: c,
		options:   o,
		pace:      pace{Retries: engine.Retries{New: o.backOff}},
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
		_ = c.Close() // it has no session to end
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
	s, err := c.session(ctx)
	if err == nil {
		_, err = s.List(ctx, "dlock-ping") // any queue will do, it need not exist
	}
	switch last := c.unreached(); {
	case err == nil:
		return nil
	case ctx.Err() != nil && last != nil:
		return fmt.Errorf("dlock: ping: %w (last error: %w)", engine.WithCause(ctx, ctx.Err()), last)
	}
	return fmt.Errorf("dlock: ping: %w", c.closedOr(inTime(ctx, err)))
}

// Close ends the client and releases everything that it holds. Calls in flight
// return [ErrClosed], and Lost of every lock closes. Then the client ends its
// session in the store, which removes the nodes, and also sessions that were
// lost before and that the store may still keep. Close waits for all this, for
// 20 s at most.
//
// An error that matches driver.ErrUnavailable means that the store could not be
// reached. The nodes then stay until the session times out in the store, and may
// block other clients until then. The error says how long that takes. A second
// Close returns the result of the first one.
func (c *Client) Close() error {
	c = c.opened()
	if c.beginClose() {
		c.result = c.close()
		close(c.finished)
	}
	<-c.finished
	return c.result
}

// beginClose makes every call from now on fail. It returns false if that was done before.
func (c *Client) beginClose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.closing = true
	close(c.done)
	c.calls.close()
	if c.cancelDial != nil {
		c.cancelDial(ErrClosed)
	}
	return true
}

func (c *Client) close() error {
	all := c.endSessions()
	if !c.calls.await(closeTimeout) {
		all = append(all, fmt.Errorf("dlock: close: some calls are still in flight after %v", closeTimeout))
	}
	return join(all...)
}

// endSessions waits until every session has ended here and in the store, or could
// not be ended there. Each of them notices the Close by itself.
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

// beginCall begins a call that Close has to wait for. If it succeeds, endCall follows.
func (c *Client) beginCall() error {
	if !c.calls.begin() {
		return ErrClosed
	}
	return nil
}

func (c *Client) endCall() { c.calls.end() }

// spawn runs f on a goroutine that Close waits for, or not at all, and reports false, once Close
// has begun.
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

// closedOr returns ErrClosed if the client was closed, which then explains any other error.
func (c *Client) closedOr(err error) error {
	select {
	case <-c.done:
		return ErrClosed
	default:
		return err
	}
}

// session returns the live session, connecting if there is none. However many
// callers there are, one attempt is made at a time. It goes on when a caller
// gives up, and ends with the last one. A caller that comes while an attempt is
// given up has another one made.
func (c *Client) session(ctx context.Context) (*session, error) {
	for {
		s, err := c.sessionOnce(ctx)
		if !errors.Is(err, errNobodyWaits) && !errors.Is(err, errDialGivenUp) {
			return s, err
		}
	}
}

func (c *Client) sessionOnce(ctx context.Context) (*session, error) {
	if s := c.usable(); s != nil {
		return s, nil
	}
	c.await(1)
	dialed := c.dials.DoChan("", func() (any, error) { return c.dial(ctx) })
	select {
	case r := <-dialed:
		c.await(-1)
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*session), nil
	case <-ctx.Done():
		if c.await(-1) == 0 {
			c.giveUpDial(dialed)
		}
		return nil, ctx.Err()
	case <-c.done:
		c.await(-1)
		return nil, ErrClosed
	}
}

// await counts those who wait for the dial in flight.
func (c *Client) await(change int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += change
	return c.waiting
}

// giveUpDial ends an attempt for which nobody waits any more, and waits a moment for its reason.
func (c *Client) giveUpDial(dialed <-chan singleflight.Result) {
	c.mu.Lock()
	cancel := c.cancelDial
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel(errDialGivenUp)
	t := time.NewTimer(giveUpTimeout)
	defer t.Stop()
	select {
	case <-dialed:
	case <-t.C:
	}
}

// unreached returns why there is no session, as far as that is known.
func (c *Client) unreached() error {
	if err := c.dialErr.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *Client) usable() *session {
	s := c.live.Load()
	if s == nil {
		return nil
	}
	select {
	case <-s.Done():
		return nil
	default:
		return s
	}
}

// dial connects. The hook gets the context of the caller that began the
// attempt, which does not end with that caller.
func (c *Client) dial(ctx context.Context) (any, error) {
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.endCall()
	if s := c.usable(); s != nil {
		return s, nil
	}
	if !c.pace.wait(c.done) {
		return nil, ErrClosed
	}
	began := time.Now()
	ds, err := c.connect()
	if errors.Is(err, errNobodyWaits) {
		return nil, err
	}
	c.pace.record(err)
	c.dialErr.Store(nil)
	if err != nil {
		c.dialErr.Store(&err)
	}
	info := ConnectedInfo{Took: time.Since(began), Err: err}
	if err == nil {
		info.Session = driver.Describe(ds)
	}
	c.connected(ctx, info)
	if err != nil {
		return nil, err
	}
	return c.adopt(ds)
}

func (c *Client) setCancelDial(cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelDial = cancel
}

func (c *Client) connect() (driver.Session, error) {
	limited, stop := context.WithTimeout(context.Background(), dialTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	defer c.setCancelDial(nil)
	c.mu.Lock()
	c.cancelDial = cancel
	closing, waiting := c.closing, c.waiting
	c.mu.Unlock()
	switch {
	case closing:
		return nil, ErrClosed
	case waiting == 0: // they gave up before there was anything to cancel
		return nil, errNobodyWaits
	}
	if c.connector == nil {
		return nil, errNoConnector
	}
	s, err := c.connector.Connect(ctx)
	if s == nil && err == nil {
		return nil, errNoSession
	}
	if err != nil && ctx.Err() != nil { // which is not the caller's context
		err = mask(engine.WithCause(ctx, err), context.DeadlineExceeded, context.Canceled)
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return s, err
}

// adopt makes a new driver session the client's, unless it was closed meanwhile.
func (c *Client) adopt(ds driver.Session) (*session, error) {
	s := newSession(c, ds)
	if !c.register(s) {
		if err := ds.Close(); err != nil {
			c.options.logger.Warn("dlock: session left to time out", "error", err)
		}
		c.endedBy(ErrClosed)
		return nil, ErrClosed
	}
	return s, nil
}

// register makes s the live session. It returns false if Close has begun.
func (c *Client) register(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.live.Store(s)
	c.sessions[s] = struct{}{}
	close(c.begun)
	c.begun = make(chan struct{})
	go s.attend() // Close waits for it
	return true
}

// nextBegun returns a channel that closes when the next session begins.
func (c *Client) nextBegun() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

// forget drops a session that has ended in the store.
func (c *Client) forget(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
}

func (c *Client) connected(ctx context.Context, info ConnectedInfo) {
	if info.Err != nil {
		c.options.logger.Warn("dlock: no session", "error", info.Err)
	} else {
		c.options.logger.Info("dlock: session began", "session", info.Session.ID,
			"server", info.Session.Server, "timeout", info.Session.Timeout, "took", info.Took)
	}
	if hook := c.options.trace.Connected; hook != nil {
		hook(ctx, info)
	}
}

// endedBy traces the end of a session.
func (c *Client) endedBy(cause error) {
	if hook := c.options.trace.SessionEnded; hook != nil {
		hook(context.Background(), SessionEndedInfo{Err: cause})
	}
}

// pace keeps attempts apart that follow failures.
type pace struct {
	engine.Retries
	until time.Time
}

func (p *pace) record(err error) {
	if err == nil {
		p.Succeeded()
		p.until = time.Time{}
		return
	}
	p.until = time.Now().Add(p.NextEndless())
}

// wait returns false if stop closed first.
func (p *pace) wait(stop <-chan struct{}) bool {
	if p.until.IsZero() {
		return true
	}
	return engine.Sleep(time.Until(p.until), stop)
}
