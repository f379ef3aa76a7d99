package recipes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// progress is what an attempt has found out about the queue and the store.
// Errors and the log report it. In a cohort, the waiters read the progress of
// the attempt that contends for them.
type progress struct {
	mu   sync.Mutex
	node string      // the name of the last entry's node
	view engine.View // the last view of the queue; zero before the queue was joined
	last error       // the last error of the store; nil if the store has answered since
}

// state is a copy of the fields of a progress, made while its mutex was held.
type state struct {
	node string
	view engine.View
	last error
}

func (p *progress) now() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	return state{p.node, p.view, p.last}
}

func (p *progress) set(change func(p *progress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// unanswered is called when the context of the call has ended. If a request was
// under way then, unanswered stores its error, so that the error of the call
// says that the store has not answered.
func (a *attempt) unanswered(err error) {
	switch {
	case errors.Is(err, driver.ErrUnavailable):
		a.failed(err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		a.failed(errNoAnswer)
	}
}

// failed keeps an error of the store until the store has answered.
func (a *attempt) failed(err error) { a.progress.set(func(p *progress) { p.last = err }) }

func (a *attempt) retrying(ctx context.Context, err error, delay time.Duration) {
	a.m.options.logger.Warn("dlock: trying again", "lock", a.m.name, "in", delay, "error", err)
	if hook := a.m.options.trace.Retrying; hook != nil {
		hook(ctx, RetryingInfo{Lock: a.m.name, Err: err, Delay: delay})
	}
}

// Waits is called each time before the entry waits. It keeps v for errors and
// the log, and calls the hook Waiting.
func (a *attempt) Waits(ctx context.Context, node string, v engine.View) {
	a.progress.set(func(p *progress) { p.view = v })
	a.startSlow(ctx)
	if hook := a.m.options.trace.Waiting; hook != nil {
		hook(ctx, WaitingInfo{Lock: a.m.name, Node: node, Predecessor: v.Behind, Position: v.Position})
	}
}

// slowAfter is how long a call waits before it logs, once, for which node it
// waits.
const slowAfter = 5 * time.Second

// logsSlow reports whether the call has to log that it waits for long.
func (a *attempt) logsSlow(ctx context.Context) bool {
	return !a.try && a.m.options.logger.Enabled(ctx, slog.LevelDebug)
}

func (a *attempt) startSlow(ctx context.Context) {
	if a.slow == nil && a.logsSlow(ctx) {
		a.slow = time.AfterFunc(slowAfter-a.elapsed(), a.logSlow)
	}
}

func (a *attempt) stopSlow() {
	if a.slow != nil {
		a.slow.Stop()
	}
}

func (a *attempt) logSlow() {
	p := a.progress.now()
	a.m.options.logger.Debug("dlock: still waiting", "lock", a.m.name, "node", p.node,
		"behind", printable(p.view.Behind), "holder", printable(p.view.First), "position", p.view.Position,
		"waited", a.waited())
}

// interrupted returns the error of a call whose context has ended. The error
// also matches the cause of the context: the context may come from another
// lock, which was lost or unlocked.
func (a *attempt) interrupted(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrLost), errors.Is(cause, ErrNotHeld):
		return lockError(a.m.name, engine.WithCause(ctx, err))
	case errors.Is(err, context.DeadlineExceeded):
		return a.timedOut(ctx)
	case cause != err:
		return lockError(a.m.name, fmt.Errorf("%w: %w", err, cause))
	}
	return lockError(a.m.name, err)
}

func (a *attempt) timedOut(ctx context.Context) error {
	after := a.waited()
	if deadline, ok := ctx.Deadline(); ok {
		after = max(0, deadline.Sub(a.began).Round(time.Millisecond))
	}
	p := a.progress.now()
	joined := p.view.Behind != ""
	if reason := a.m.client.unreached(); reason != nil && !joined && (p.last == nil || p.last == errNoAnswer) {
		p.last = reason
	}
	err := &timeoutError{lock: a.m.name, after: after, holder: p.view.First, ahead: p.view.Position - 1, last: p.last}
	if mine := a.m.client.heldNode(a.m.name); mine != "" && joined {
		err.holder, err.mine = mine, true
	} else if p.view.First != p.view.Behind && a.m.queue.Wait.Kind == engine.WatchPredecessor {
		err.asOf = time.Since(p.view.Seen).Round(time.Millisecond)
	}
	return err
}

func (a *attempt) waited() time.Duration { return a.elapsed().Round(time.Millisecond) }
