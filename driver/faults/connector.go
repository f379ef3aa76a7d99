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

// Connector wraps the connector of a driver and injects faults. See the package
// comment.
type Connector struct {
	inner    driver.Connector
	plan     Plan
	calls    *calls.Group // calls of Connect in flight
	connects atomic.Int64
	tally    counters

	mu       sync.Mutex
	sessions map[int]*session // live sessions by number
}

// Plan decides which fault to inject into a request, its reply, or an event of
// a watch.
//
// A Plan must be safe for concurrent use. It may block: the request, the reply
// or the event waits until the Plan has returned. A Plan must return soon after
// ctx is done, and its decision is ignored then. The ctx of a request and of
// its reply ends with the session, that of a Connect ends with the caller's,
// and that of a watch event ends with the session or with the watch. The ctx of
// a Close ends after two seconds at the latest.
type Plan func(ctx context.Context, r Request) Fault

// New returns a connector whose sessions are those of c, with the faults of
// plan. A nil plan injects no faults.
func New(c driver.Connector, plan Plan) *Connector {
	return &Connector{inner: c, plan: plan, calls: newCalls(), sessions: make(map[int]*session)}
}

// newCalls returns a Group without a limit.
func newCalls() *calls.Group { return calls.NewGroup(math.MaxInt) }

// Connect implements driver.Connector. Its sessions have all optional methods.
// Those that the driver's session does not support return an error that matches
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

// connect sends a Connect to the store, with the faults of the request and of
// the reply.
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

// decide asks the plan for the fault of a request at its current stage, and
// waits for the delay of this fault. It returns an error if the request, the
// reply or the event is lost, or if ctx ends meanwhile.
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

// pause reports whether d passed before ctx ended.
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
// session's nodes are gone. The number is that of [Request.Session]. The error
// is that of closing the driver's session, or nil if the session has ended
// before or never existed.
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

// EndSessions ends all live sessions, and returns when their nodes are gone.
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

// Unwrap returns the driver's session wrapped by a session of a [Connector],
// and any other session as it is. Tests need it for functions that take a
// session of a particular store, such as those of memdriver.Faults.
func Unwrap(s driver.Session) driver.Session {
	if f, ok := s.(*session); ok {
		return f.inner
	}
	return s
}
