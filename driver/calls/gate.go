package calls

import (
	"context"
	"sync"
)

// Gate counts the calls in flight of a session. Its Close ends them, waits for
// them, and lets no other begin. So a session that closes its Gate in Close sends
// no request after Close has returned (rule 11).
//
// The zero Gate is open. A Gate is safe for use by many goroutines. It must not be
// copied after its first use.
type Gate struct {
	mu     sync.Mutex
	closed bool
	life   context.Context // of the calls; Close ends it
	end    context.CancelFunc
	calls  sync.WaitGroup
}

// Enter lets a call begin. The call works with the context that Enter returns,
// which ends with ctx and when the Gate is closed, and calls leave when it is
// done. After Close, Enter reports false, and the call sends nothing.
func (g *Gate) Enter(ctx context.Context) (life context.Context, leave func(), open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ctx, nil, false
	}
	if g.life == nil {
		g.life, g.end = context.WithCancel(context.Background())
	}
	g.calls.Add(1)
	life, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.life, cancel)
	return life, func() {
		stop()
		cancel()
		g.calls.Done()
	}, true
}

// Go runs f on a goroutine that Close waits for, and reports whether it does: not
// after Close. The function f has to return soon after Close was called.
func (g *Gate) Go(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.calls.Go(f)
	}
	return !g.closed
}

// Close ends the contexts of the calls in flight, and returns when the calls have
// left and the goroutines of Go have ended. No call and no goroutine begins any
// more. A second Close waits as well.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	if g.end != nil {
		g.end()
	}
	g.mu.Unlock()
	g.calls.Wait()
}
