package recipes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/reason"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

const dialTimeout = 30 * time.Second

var (
	errNoConnector = errors.New("the connector is nil")
	errNoSession   = errors.New("the driver has returned neither a session nor an error")
	errNobodyWaits = fmt.Errorf("%w: no call waits for a session any more", driver.ErrUnavailable)
	errStartsAnew  = errors.New("no connection before the last call gave up")
)

type dialing struct {
	err     atomic.Pointer[error] // why Connect has not succeeded; nil once connected
	attempt *dialAttempt

	// Used by one attempt at a time:
	pace       pace   // delays the next attempt after a failure
	generation string // SessionInfo.Generation of the last session
}

// dialAttempt is one attempt to connect. It outlives its callers, because those
// with short deadlines would otherwise never get a session.
type dialAttempt struct {
	ended   chan struct{}
	session *session
	err     error

	// Guarded by Client.mu:
	callers int                     // number of calls that wait for the attempt
	cancel  context.CancelCauseFunc // cancels the Connect in flight, if any
	anew    chan struct{}           // closed when the Connect cancelled by giveUp returns
}

// joinAttempt returns the attempt in flight, or starts one.
func (c *Client) joinAttempt(ctx context.Context) *dialAttempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drains() {
		return nil
	}
	if c.dialing.attempt == nil {
		a := &dialAttempt{ended: make(chan struct{}), err: errNoSession}
		if !c.spawn(func() {
			defer c.endAttempt(a)
			a.session, a.err = c.dial(context.WithoutCancel(ctx), a)
		}) {
			return nil
		}
		c.dialing.attempt = a
	}
	c.dialing.attempt.callers++
	return c.dialing.attempt
}

func (c *Client) endAttempt(a *dialAttempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dialing.attempt == a {
		c.dialing.attempt = nil
	}
	close(a.ended)
}

// giveUp ends a call's wait for the attempt. The last caller cancels Connect to
// learn why it hangs. The attempt then calls Connect again.
func (c *Client) giveUp(a *dialAttempt) {
	c.mu.Lock()
	a.callers--
	if a.callers > 0 || a.cancel == nil || a.anew != nil || c.unreached() != nil {
		c.mu.Unlock()
		return
	}
	a.anew = make(chan struct{})
	a.cancel(errStartsAnew)
	c.mu.Unlock()
	entry.Sleep(giveUpTimeout, a.anew)
}

func (c *Client) unreached() error {
	if err := c.dialing.err.Load(); err != nil {
		return *err
	}
	return nil
}

// dial connects, after a pause if the last attempt failed. ctx is only for the
// Connected hook.
func (c *Client) dial(ctx context.Context, a *dialAttempt) (*session, error) {
	if s := c.current(); s != nil {
		return s, nil
	}
	if !c.dialing.pace.sleep(c.draining) {
		return nil, ErrClosed
	}
	ds, err := c.connect(ctx, a)
	if anew := c.startsAnew(a); anew != nil {
		close(anew)
		if err != nil {
			ds, err = c.connect(ctx, a)
		}
	}
	if errors.Is(err, errNobodyWaits) {
		return nil, err
	}
	c.dialing.pace.attempted(err)
	if err != nil {
		return nil, err
	}
	return c.adopt(ds)
}

func (c *Client) startsAnew(a *dialAttempt) (anew chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return a.anew
}

func (c *Client) connect(ctx context.Context, a *dialAttempt) (driver.Session, error) {
	began := time.Now()
	ds, err := c.connectOnce(a)
	if errors.Is(err, errNobodyWaits) {
		return nil, err
	}
	c.dialing.err.Store(nil)
	if err != nil {
		c.dialing.err.Store(&err)
	}
	info := ConnectedInfo{Took: time.Since(began), Err: err}
	if err == nil {
		info.Session = driver.Inspect(ds).Describe()
		if info.Session.Generation != c.dialing.generation {
			info.Before = c.dialing.generation
		}
		c.dialing.generation = info.Session.Generation
	}
	c.connected(ctx, info)
	return ds, err
}

func (c *Client) connectOnce(a *dialAttempt) (driver.Session, error) {
	limited, stop := context.WithTimeout(context.Background(), dialTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	if err := c.beginConnect(a, cancel); err != nil {
		return nil, err
	}
	defer c.endConnect(a)
	connect := c.connector.Connect
	if o, ok := c.connector.(driver.Observer); ok && c.options.readOnly {
		connect = o.Observe
	}
	s, err := connect(reason.With(ctx, func(err error) { c.dialing.err.Store(&err) }))
	if s == nil && err == nil {
		return nil, errNoSession
	}
	if err == nil && c.options.readOnly {
		s = readOnly{s, driver.Inspect(s)}
	}
	if err != nil && ctx.Err() != nil { // hide errors of this function's own context
		err = mask(entry.WithCause(ctx, err), context.DeadlineExceeded, context.Canceled)
		if !errors.Is(err, driver.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
	}
	return s, err
}

// readOnly is the session of a client with [WithReadOnly]. It refuses Create
// and Remove; all other changes need a node.
type readOnly struct {
	driver.Session
	driver.Inspector
}

var errReadOnly = fmt.Errorf("%w: the client only looks, as WithReadOnly says", errors.ErrUnsupported)

func (readOnly) Create(context.Context, string, driver.NodeSpec) (driver.Joined, error) {
	return driver.Joined{}, errReadOnly
}

func (readOnly) Remove(context.Context, string, driver.Place) error { return errReadOnly }

// beginConnect returns nil if Connect may be called. It may not if all callers
// gave up during the pause.
func (c *Client) beginConnect(a *dialAttempt, cancel context.CancelCauseFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.drains():
		return ErrClosed
	case c.connector == nil:
		return errNoConnector
	case a.callers == 0 && a.anew == nil:
		c.dialing.attempt = nil
		return errNobodyWaits
	}
	a.cancel = cancel
	return nil
}

func (c *Client) endConnect(a *dialAttempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.cancel = nil
}

func (c *Client) connected(ctx context.Context, info ConnectedInfo) {
	if info.Err != nil {
		c.options.logger.Warn("dlock: no session", "error", info.Err)
	} else {
		attributes := []any{"session", info.Session.ID,
			"server", info.Session.Server, "timeout", info.Session.Timeout, "took", info.Took}
		if info.Before != "" {
			attributes = append(attributes, "generation", info.Session.Generation, "before", info.Before)
		}
		c.options.logger.Info("dlock: session began", attributes...)
	}
	if hook := c.options.trace.Connected; hook != nil {
		hook(ctx, info)
	}
}

type pace struct {
	entry.Retries
	until time.Time
}

func (p *pace) attempted(err error) {
	if err == nil {
		p.Succeeded()
		p.until = time.Time{}
		return
	}
	p.until = time.Now().Add(p.NextEndless())
}

func (p *pace) sleep(stop <-chan struct{}) bool {
	if p.until.IsZero() {
		return true
	}
	return entry.Sleep(time.Until(p.until), stop)
}

// silentAfter is how long a client waits for the first answer before it warns.
const silentAfter = 5 * time.Second

// watchSilence starts a timer that logs, once per client, that no session has
// begun within silentAfter. The caller stops the timer when its call ends.
func (c *Client) watchSilence() *time.Timer {
	return time.AfterFunc(silentAfter, func() {
		if c.beginCall() == nil {
			defer c.endCall()
			c.logSilence()
		}
	})
}

func (c *Client) logSilence() {
	if c.live.Load() != nil || c.drains() || !c.silent.CompareAndSwap(false, true) {
		return
	}
	err := c.unreached()
	if err == nil {
		err = errNoAnswer // Connect has not returned yet
	}
	logger := slog.Default() // even without WithLogger
	if c.options.loggerSet {
		logger = c.options.logger
	}
	logger.Warn("dlock: still no session with the store", "waited", silentAfter, "error", err)
}
