package calls

import (
	"context"
	"sync"
)

// Gate keeps track of the calls in flight of a session, and of its goroutines. A
// session that closes its Gate in Close sends no request after Close has returned:
// rule 11 of package driver.
//
// The zero Gate is open. A Gate is safe for use by many goroutines. It must not be
// copied after its first use.
type Gate struct {
	mu     sync.Mutex
	closed bool
	ends   map[*context.CancelFunc]struct{} // the functions that end the calls in flight
	calls  sync.WaitGroup                   // the calls in flight, and the goroutines that Go has started
}

// Enter registers a call, and reports with open whether the call may begin.
// After Close, open is false and leave is nil. The call works with the context
// that Enter returns. That context ends when ctx ends, and when the Gate is
// closed. At its end the call has to call leave.
func (g *Gate) Enter(ctx context.Context) (life context.Context, leave func(), open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ctx, nil, false
	}
	if g.ends == nil {
		g.ends = make(map[*context.CancelFunc]struct{})
	}
	g.calls.Add(1)
	life, end := context.WithCancel(ctx)
	g.ends[&end] = struct{}{}
	return life, func() {
		g.mu.Lock()
		delete(g.ends, &end)
		g.mu.Unlock()
		end()
		g.calls.Done()
	}, true
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
	for end := range g.ends {
		(*end)()
	}
	g.mu.Unlock()
	g.calls.Wait()
}
