package recipes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// progress is what a call has learned so far, for use in errors and logs.
type progress struct {
	mu sync.Mutex
	snapshot
}

type snapshot struct {
	node string
	view entry.View // latest view of the queue; zero before joining
	last error      // latest error; nil after a success
}

func (p *progress) now() snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot
}

func (p *progress) set(change func(p *snapshot)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.snapshot)
}

// unanswered notes that a request was in flight when the call's context ended.
func (c *call) unanswered(err error) {
	switch {
	case errors.Is(err, driver.ErrUnavailable):
		c.noteError(err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		c.noteError(errNoAnswer)
	}
}

// noteError records an error of the store; nil clears it after a success.
func (c *call) noteError(err error) { c.progress.set(func(p *snapshot) { p.last = err }) }

func (c *call) reportRetry(ctx context.Context, err error, delay time.Duration) {
	c.options.logger.Warn("dlock: trying again", "lock", c.name, "in", delay, "error", err)
	if hook := c.options.trace.Retrying; hook != nil {
		hook(ctx, RetryingInfo{Recipe: c.recipe, Lock: c.name, Err: err, Delay: delay})
	}
}

// Waits records what blocks the call, and runs the Waiting hook.
func (c *call) Waits(ctx context.Context, node string, v entry.View) {
	c.progress.set(func(p *snapshot) { p.view = v })
	if c.slow == nil && c.options.logger.Enabled(ctx, slog.LevelDebug) {
		c.slow = time.AfterFunc(slowAfter-c.elapsed(), c.logSlow)
	}
	if hook := c.options.trace.Waiting; hook != nil {
		hook(ctx, WaitingInfo{Recipe: c.recipe, Lock: c.name, Node: node, Predecessor: v.Behind, Position: v.Position})
	}
}

// slowAfter is how long a call waits before it logs what it waits for.
const slowAfter = 5 * time.Second

func (c *call) logSlow() {
	p := c.progress.now()
	c.options.logger.Debug("dlock: still waiting", "lock", c.name, "recipe", c.recipe, "node", p.node,
		"behind", printable(p.view.Behind), "holder", printable(p.view.First), "position", p.view.Position,
		"waited", c.waited())
}

// interrupted returns the error of a call whose context has ended, perhaps
// because another lock was lost or unlocked.
func (c *call) interrupted(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrLost), errors.Is(cause, ErrNotHeld):
		return lockError(c.name, entry.WithCause(ctx, err))
	case errors.Is(err, context.DeadlineExceeded):
		return c.timedOut(ctx)
	case cause != err:
		return lockError(c.name, fmt.Errorf("%w: %w", err, cause))
	}
	return lockError(c.name, err)
}

func (c *call) timedOut(ctx context.Context) error {
	after := c.waited()
	if deadline, ok := ctx.Deadline(); ok {
		after = max(0, deadline.Sub(c.began).Round(time.Millisecond))
	}
	p := c.progress.now()
	joined := p.view.Behind != ""
	if reason := c.client.unreached(); reason != nil && !joined && (p.last == nil || p.last == errNoAnswer) {
		p.last = reason
	}
	err := &timeoutError{lock: c.name, after: after, holder: p.view.First, ahead: p.view.Position - 1, last: p.last}
	if mine := c.client.heldNode(c.name); mine != "" && joined {
		err.holder, err.mine = mine, true
	} else if p.view.First != p.view.Behind && c.entryQueue.WaitPolicy.Kind == entry.WatchPredecessor {
		err.asOf = time.Since(p.view.Seen).Round(time.Millisecond)
	}
	return err
}

func (c *call) waited() time.Duration { return c.elapsed().Round(time.Millisecond) }
