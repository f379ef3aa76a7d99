package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// dialTimeout limits one attempt to connect.
const dialTimeout = 30 * time.Second

var (
	errNoConnector = errors.New("the connector is nil")
	errNoSession   = errors.New("the driver has returned neither a session nor an error")
	errNobodyWaits = fmt.Errorf("%w: no call waits for a session any more", driver.ErrUnavailable)
	errStartsAnew  = errors.New("no call waits any more, and the client connects anew")
)

// dialing is the state of a client's attempts to connect.
type dialing struct {
	err     atomic.Pointer[error] // the last error of Connect; nil if Connect has succeeded since
	pace    pace                  // the pauses between attempts; one attempt at a time uses it
	attempt *dialAttempt          // guarded by Client.mu; nil: none is under way
}

// dialAttempt is one attempt to connect, shared by all calls that need a
// session meanwhile. Once it has called Connect, it goes on when they give up,
// because calls with deadlines shorter than a connect would never get a session
// otherwise. It ends with Connect, after dialTimeout, or with Close.
type dialAttempt struct {
	ended   chan struct{} // closed when session and err are set
	session *session
	err     error

	// Guarded by Client.mu:
	callers int                     // how many calls wait for the attempt
	cancel  context.CancelCauseFunc // cancels the Connect under way; nil: none is
	anew    chan struct{}           // closed when the Connect that giveUp has cancelled has returned; nil: there was none
}

// joinAttempt returns the attempt under way, or begins one. Once Close has
// begun, it returns nil.
func (c *Client) joinAttempt(ctx context.Context) *dialAttempt {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// giveUp is called when a call stops waiting for the attempt. If no call knows
// yet why there is no session, the last one cancels Connect to find out, and
// waits for the error for giveUpTimeout. That happens once in an attempt, which
// then calls Connect anew.
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
	awaitBriefly(a.anew)
}

// awaitBriefly waits until done is closed, for giveUpTimeout at most.
func awaitBriefly(done <-chan struct{}) {
	t := time.NewTimer(giveUpTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// unreached returns the error of the last attempt to connect, or nil.
func (c *Client) unreached() error {
	if err := c.dialing.err.Load(); err != nil {
		return *err
	}
	return nil
}

// dial connects. The hook Connected gets ctx, which has the values of the
// context of the call that began the attempt.
func (c *Client) dial(ctx context.Context, a *dialAttempt) (*session, error) {
	if s := c.current(); s != nil {
		return s, nil
	}
	if !c.dialing.pace.sleep(c.done) {
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
	c.dialing.pace.record(err)
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

// connect calls Connect once, and reports the result.
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
		info.Session = driver.Describe(ds)
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
	s, err := c.connector.Connect(ctx)
	if s == nil && err == nil {
		return nil, errNoSession
	}
	if err != nil && ctx.Err() != nil { // ctx belongs to the attempt; it is not the context of a caller
		err = mask(engine.WithCause(ctx, err), context.DeadlineExceeded, context.Canceled)
		if !errors.Is(err, driver.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
	}
	return s, err
}

// beginConnect returns why Connect must not be called, or nil. If all callers
// gave up in the pause before, later calls begin another attempt.
func (c *Client) beginConnect(a *dialAttempt, cancel context.CancelCauseFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
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
		c.options.logger.Info("dlock: session began", "session", info.Session.ID,
			"server", info.Session.Server, "timeout", info.Session.Timeout, "took", info.Took)
	}
	if hook := c.options.trace.Connected; hook != nil {
		hook(ctx, info)
	}
}

// pace spaces out attempts to connect that follow failures.
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

// sleep waits until the next attempt may begin. It returns false if stop closes
// first.
func (p *pace) sleep(stop <-chan struct{}) bool {
	if p.until.IsZero() {
		return true
	}
	return engine.Sleep(time.Until(p.until), stop)
}
