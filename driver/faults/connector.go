package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Connector wraps a driver's connector and injects faults. See the package
// comment.
type Connector struct {
	inner    driver.Connector
	plan     Plan
	connects atomic.Int64
	tally    counters

	mu       sync.Mutex
	sessions map[int]*session // live sessions by number
}

// Plan chooses the fault to inject into a request, its reply, or a watch event.
//
// A Plan must be safe for concurrent use. It may block, which delays the
// request, the reply or the event. It must return soon after ctx is done, and
// its decision is then ignored. When ctx ends depends on the request:
//
//   - Connect: with the caller's ctx
//   - Close: after two seconds at the latest
//   - a watch event: with the session or the watch
//   - all others: with the session
type Plan func(ctx context.Context, r Request) Fault

// New returns a connector that passes requests on to c and injects the faults
// chosen by plan. A nil plan injects none.
func New(c driver.Connector, plan Plan) *Connector {
	return &Connector{inner: c, plan: plan, sessions: make(map[int]*session)}
}

// Connect implements driver.Connector. Its sessions have all optional methods.
// A method that the driver does not support returns an error that matches
// errors.ErrUnsupported.
func (c *Connector) Connect(ctx context.Context) (driver.Session, error) {
	r := Request{Op: OpConnect, Nth: 1}
	if err := ctx.Err(); err != nil {
		return nil, r.failed(err)
	}
	r.Session = int(c.connects.Add(1))
	if c.plan == nil {
		inner, err := c.inner.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return c.newSession(r.Session, inner), nil
	}
	s, err := detach(ctx, func() (*session, error) { return c.connect(ctx, r) },
		func(s *session, err error) {
			if err == nil {
				_ = s.Close()
			}
		}, func() {})
	switch {
	case err != nil && err == ctx.Err():
		return nil, r.failed(err)
	case err != nil:
		return nil, err
	}
	return s, nil
}

// Check implements driver.Checker. No fault is injected into it.
func (c *Connector) Check(ctx context.Context) ([]driver.Finding, error) {
	if inner, ok := c.inner.(driver.Checker); ok {
		return inner.Check(ctx)
	}
	return nil, errors.ErrUnsupported
}

func (c *Connector) connect(ctx context.Context, r Request) (*session, error) {
	sent, err := c.decide(ctx, r)
	if err != nil {
		return nil, err
	}
	inner, err := c.inner.Connect(ctx)
	r.Stage, r.Err = StageReply, err
	if err != nil {
		_, lost := c.decide(ctx, r)
		return nil, cmp.Or(lost, err)
	}
	s := c.newSession(r.Session, inner)
	answered, lost := c.decide(ctx, r)
	switch {
	case lost != nil:
		return nil, errors.Join(lost, s.Close())
	case sent.EndSession || answered.EndSession:
		s.end()
	}
	return s, nil
}

// decide applies the plan's delay. It returns an error if the request, reply or
// event is lost, or if ctx ends.
func (c *Connector) decide(ctx context.Context, r Request) (Fault, error) {
	fault := c.plan(ctx, r)
	c.tally.add(r, fault)
	switch {
	case !pause(ctx, fault.Delay):
		return fault, r.failed(ctx.Err())
	case !fault.Lose:
		return fault, nil
	}
	return fault, r.failed(cmp.Or(fault.Err, errLost))
}

var errLost = fmt.Errorf("%w: lost on its way", driver.ErrUnavailable)

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

// EndSession ends the session with the given number (see [Request.Session]),
// and waits until the session's nodes are gone. The error is that of closing
// the driver's session. It is nil if the session had already ended or never
// existed.
func (c *Connector) EndSession(number int) error {
	c.mu.Lock()
	s := c.sessions[number]
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	c.tally.sessionsEnded.Add(1)
	return s.inner.Close()
}

// EndSessions ends all live sessions and waits until their nodes are gone.
func (c *Connector) EndSessions() {
	c.mu.Lock()
	var all []int
	for number := range c.sessions {
		all = append(all, number)
	}
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, number := range all {
		wg.Go(func() { _ = c.EndSession(number) })
	}
	wg.Wait()
}

// Unwrap returns the driver's session behind a session of a [Connector]. Any
// other session is returned unchanged. Tests need Unwrap for functions that
// expect a particular store's session, such as those of memdriver.Faults.
func Unwrap(s driver.Session) driver.Session {
	if f, ok := s.(*session); ok {
		return f.inner
	}
	return s
}
