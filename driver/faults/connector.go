package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/calls"
)

// Connector wraps the connector of a driver and plays faults. See the package
// comment.
type Connector struct {
	inner    driver.Connector
	plan     Plan
	calls    *calls.Group // the calls of Connect that have not returned yet
	connects atomic.Int64
	tally    counters

	mu       sync.Mutex
	sessions map[int]*session // the sessions that live, by their numbers
}

// Plan decides which fault a request, its reply, or the news of a watch meets
// on its way.
//
// A Plan is called from many goroutines at the same time. It may block: the
// request, the reply or the news waits until the Plan has returned. A Plan has
// to return soon after ctx has ended, and its decision is ignored then. The ctx
// of a request and of its reply ends with the session. The ctx of a Connect
// ends with the ctx of the caller. The ctx of the news of a watch ends with the
// session, and also when the watch ends or is stopped. The ctx of a Close ends
// after two seconds at the latest.
type Plan func(ctx context.Context, r Request) Fault

// New returns a connector that begins sessions of c and plays the faults of
// plan. A nil plan plays no faults.
func New(c driver.Connector, plan Plan) *Connector {
	return &Connector{inner: c, plan: plan, calls: newCalls(), sessions: make(map[int]*session)}
}

// newCalls returns a Group without a limit.
func newCalls() *calls.Group { return calls.NewGroup(math.MaxInt) }

// Connect implements driver.Connector. Its sessions have all optional methods.
// A method that the driver's session does not support returns an error that
// matches errors.ErrUnsupported.
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
	s, err := calls.Do(ctx, c.calls,
		func() (*session, error) { return c.connect(ctx, r) },
		func(s *session, err error) {
			if err == nil {
				_ = s.Close()
			}
		})
	switch {
	case err != nil && err == ctx.Err():
		return nil, r.failed(err)
	case err != nil:
		return nil, err
	}
	return s, nil
}

// connect sends a Connect to the store and returns the session. It plays the
// faults of the request and of the reply.
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

// decide asks the plan for the fault of a request at its present stage, and
// waits for as long as this fault delays the request. It returns an error if
// the request, the reply or the news is lost, or if ctx ends during the delay.
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

// pause reports whether d has passed before ctx has ended.
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

// EndSession ends a session as [Fault.EndSession] does, and returns when the
// nodes of the session are gone. The number is that of [Request.Session].
// EndSession returns the error of Close of the driver's session. It returns nil
// if that session has ended before, or never existed.
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

// EndSessions ends all sessions that live, and returns when their nodes are
// gone.
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

// Unwrap returns the driver's session that a session of a [Connector] wraps. A
// test needs it to call functions of a store that take a session of that store,
// such as those of memdriver.Faults. Unwrap returns any other session as it is.
func Unwrap(s driver.Session) driver.Session {
	if f, ok := s.(*session); ok {
		return f.inner
	}
	return s
}
