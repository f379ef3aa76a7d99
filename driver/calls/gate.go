package calls

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/timers"
)

// ErrLimit is the cause of the context of a call that has taken longer than the Limit
// of its Gate.
var ErrLimit = errors.New("calls: the call has taken too long")

// Gate keeps track of the calls in flight of a session, and of its goroutines. A
// session that closes its Gate in Close sends no request after Close has returned:
// rule 11 of package driver.
//
// The zero Gate is open. A Gate is safe for use by many goroutines. It must not be
// copied after its first use.
type Gate struct {
	// Limit is how long a call may take before the Gate ends its context, with
	// ErrLimit as the cause. Zero means that the Gate sets no limit. The context has no
	// deadline, because a client library would send it to the store, and because the
	// error of a call must not look as if the caller's deadline had passed: rule 10 of
	// package driver. Limit must not be changed after the first use of the Gate.
	Limit time.Duration

	limits   timers.Set
	mu       sync.Mutex
	closed   bool
	inFlight map[*call]struct{}
	calls    sync.WaitGroup // the calls in flight, and the goroutines that Go has started
}

// call is a call in flight.
type call struct {
	end   context.CancelCauseFunc
	timer *timers.Timer // nil if the Gate sets no limit
}

// Enter registers a call, and reports with open whether the call may begin.
// After Close, open is false and leave is nil. The call works with the context
// that Enter returns. That context ends when ctx ends, when the Gate is closed, and
// when the Limit of the Gate has passed. At its end the call has to call leave.
func (g *Gate) Enter(ctx context.Context) (life context.Context, leave func(), open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ctx, nil, false
	}
	if g.inFlight == nil {
		g.inFlight = make(map[*call]struct{})
	}
	g.calls.Add(1)
	life, end := context.WithCancelCause(ctx)
	c := &call{end: end}
	if g.Limit > 0 {
		c.timer = g.limits.AfterFunc(g.Limit, func() { end(ErrLimit) })
	}
	g.inFlight[c] = struct{}{}
	return life, func() { g.leave(c) }, true
}

func (g *Gate) leave(c *call) {
	g.mu.Lock()
	delete(g.inFlight, c)
	g.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.end(nil)
	g.calls.Done()
}

// Go starts f on a goroutine and returns true. After Close it returns false and
// does not start f. Close waits for the goroutine. So f has to return soon
// after Close was called.
func (g *Gate) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.calls.Go(f)
	}
	return !g.closed
}

// Close ends the contexts of the calls in flight. It returns when each of these calls
// has called leave and each goroutine of Go has ended. After the call of Close, no
// other call or goroutine begins. A second Close waits in the same way.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	for c := range g.inFlight {
		c.end(nil)
	}
	g.mu.Unlock()
	g.calls.Wait()
}
