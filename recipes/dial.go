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
	errDialGivenUp = errors.New("given up, as no call waits for a session any more")
)

// dialing is the state of a client's attempts to connect.
type dialing struct {
	err  atomic.Pointer[error] // the error of the last attempt; nil if it succeeded
	pace pace                  // the pauses between attempts; one attempt at a time uses it

	// Guarded by Client.mu:
	attempt *dialAttempt            // the attempt under way; nil: none is
	callers int                     // how many callers wait for an attempt
	cancel  context.CancelCauseFunc // cancels the attempt under way; nil: none is
}

// session returns the session that the client has, and connects if it has none.
// All callers share one attempt to connect. The attempt goes on when a caller
// gives up, and is cancelled when the last caller gives up. A caller that
// arrives while an attempt is being cancelled waits for another attempt.
func (c *Client) session(ctx context.Context) (*session, error) {
	for {
		s, err := c.sessionOnce(ctx)
		if !errors.Is(err, errNobodyWaits) && !errors.Is(err, errDialGivenUp) {
			return s, err
		}
	}
}

// onSession calls f with the session that the client has, and connects before
// that if it has none. If f finds that the session has ended, as it may after a
// sleep of the machine, onSession connects again and calls f once more.
func (c *Client) onSession(ctx context.Context, f func(s *session) error) (err error) {
	for range 2 {
		var s *session
		if s, err = c.session(ctx); err != nil {
			return err
		}
		if err = f(s); !errors.Is(err, driver.ErrSessionEnded) {
			return err
		}
	}
	return err
}

func (c *Client) sessionOnce(ctx context.Context) (*session, error) {
	if s := c.usable(); s != nil {
		return s, nil
	}
	c.await(1)
	a := c.dialOnce(ctx)
	if a == nil {
		c.await(-1)
		return nil, ErrClosed
	}
	select {
	case <-a.ended:
		c.await(-1)
		return a.session, a.err
	case <-ctx.Done():
		if c.await(-1) == 0 {
			c.giveUpDial(a)
		}
		return nil, ctx.Err()
	case <-c.done:
		c.await(-1)
		return nil, ErrClosed
	}
}

// dialAttempt is one attempt to connect. All callers that wait for it share its
// goroutine. So a caller that gives up leaves no goroutine behind.
type dialAttempt struct {
	ended   chan struct{} // closed when session and err are set
	session *session
	err     error
}

// dialOnce returns the attempt to connect that is under way, or else begins one.
// Once Close has begun, it begins none, and returns nil.
func (c *Client) dialOnce(ctx context.Context) *dialAttempt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dialing.attempt != nil {
		return c.dialing.attempt
	}
	a := &dialAttempt{ended: make(chan struct{}), err: errNoSession}
	if !c.spawn(func() {
		defer c.endAttempt(a)
		a.session, a.err = c.dial(ctx)
	}) {
		return nil
	}
	c.dialing.attempt = a
	return a
}

func (c *Client) endAttempt(a *dialAttempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialing.attempt = nil
	close(a.ended)
}

// await adds its argument, 1 or -1, to the number of callers that wait for the
// attempt to connect. It returns the new number.
func (c *Client) await(change int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialing.callers += change
	return c.dialing.callers
}

// giveUpDial cancels an attempt to connect that no caller waits for any more.
// It waits a moment for the attempt to end, so that the caller can report why
// there was no session.
func (c *Client) giveUpDial(a *dialAttempt) {
	c.mu.Lock()
	cancel := c.dialing.cancel
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel(errDialGivenUp)
	t := time.NewTimer(giveUpTimeout)
	defer t.Stop()
	select {
	case <-a.ended:
	case <-t.C:
	}
}

// unreached returns the error of the last attempt to connect, or nil if that
// attempt succeeded or there was none.
func (c *Client) unreached() error {
	if err := c.dialing.err.Load(); err != nil {
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

// dial connects. The hook Connected gets ctx, the context of the caller that
// began the attempt. The attempt goes on if ctx ends.
func (c *Client) dial(ctx context.Context) (*session, error) {
	if s := c.usable(); s != nil {
		return s, nil
	}
	if !c.dialing.pace.wait(c.done) {
		return nil, ErrClosed
	}
	began := time.Now()
	ds, err := c.connect()
	if errors.Is(err, errNobodyWaits) {
		return nil, err
	}
	c.dialing.pace.record(err)
	c.dialing.err.Store(nil)
	if err != nil {
		c.dialing.err.Store(&err)
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
	c.dialing.cancel = cancel
}

func (c *Client) connect() (driver.Session, error) {
	limited, stop := context.WithTimeout(context.Background(), dialTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	defer c.setCancelDial(nil)
	c.mu.Lock()
	c.dialing.cancel = cancel
	closing, waiting := c.closing, c.dialing.callers
	c.mu.Unlock()
	switch {
	case closing:
		return nil, ErrClosed
	case waiting == 0: // the callers gave up before the attempt could be cancelled
		return nil, errNobodyWaits
	}
	if c.connector == nil {
		return nil, errNoConnector
	}
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

// wait waits until the next attempt may begin. It returns false if stop closes
// first.
func (p *pace) wait(stop <-chan struct{}) bool {
	if p.until.IsZero() {
		return true
	}
	return engine.Sleep(time.Until(p.until), stop)
}
