package calls

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrLimit is the cause of the context of a call that has exceeded its Gate's
// Limit.
var ErrLimit = errors.New("calls: the call has taken too long")

// Gate keeps track of a session's goroutines and calls in flight. A session
// that closes its Gate in Close sends no request after Close has returned: rule
// 11 of package driver.
//
// The zero Gate is open. A Gate is safe for concurrent use and must not be
// copied after first use.
type Gate struct {
	// Limit is how long a call may take. After that, the Gate cancels its
	// context with ErrLimit as the cause. Zero means no limit. The context
	// has no deadline: a client library might send a deadline to the store,
	// and its error would look like that of the caller's own deadline (rule
	// 10 of package driver). Limit must not be changed after first use.
	Limit time.Duration

	mu       sync.Mutex
	closed   bool
	inFlight map[*call]struct{}
	calls    sync.WaitGroup // the calls in flight, and the goroutines started by Go
}

type call struct {
	end   context.CancelCauseFunc
	timer *time.Timer // nil without a limit
}

// Enter registers a call. If open is true, the call may begin, uses the context
// life, and must end by calling leave. The context ends when ctx ends, when the
// Gate is closed, or when the Limit has passed. After Close, open is false and
// leave is nil.
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
		c.timer = time.AfterFunc(g.Limit, func() { end(ErrLimit) })
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

// Go starts f on a goroutine and returns true. After Close it returns false
// without starting f. Close waits for the goroutine, so f must return soon
// after Close was called.
func (g *Gate) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.calls.Go(f)
	}
	return !g.closed
}

// Close cancels the contexts of the calls in flight. It waits until each call
// has left and each goroutine started by Go has ended. From the moment Close is
// called, no other call or goroutine begins. A second Close waits in the same
// way.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	for c := range g.inFlight {
		c.end(nil)
	}
	g.mu.Unlock()
	g.calls.Wait()
}
