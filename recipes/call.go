package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// call is one attempt to take a lock, from its start to its grant or error.
type call struct {
	*queue
	want  *want
	try   bool // fail with ErrLocked instead of waiting
	began time.Time

	retries  *entry.Retries // nil until a request fails
	queued   bool           // whether WithMaxQueue has let the call wait
	vanished bool           // set when the node has vanished; see retry
	slow     *time.Timer    // logs a long wait; nil before the wait
	progress progress       // for errors and logs
}

func newCall(q *queue, w *want) *call { return &call{queue: q, want: w, began: time.Now()} }

func (q *queue) acquire(ctx context.Context, w *want, try bool) (*Lock, error) {
	c := newCall(q, w)
	c.try = try
	err := cmp.Or(q.usable(ctx), w.err)
	var l *Lock
	if err == nil && w.units.of == 0 {
		l, err = c.reenter(ctx, w)
	}
	if l == nil {
		c.reportStarted(ctx)
		if err == nil {
			l, err = c.obtain(ctx)
		}
		if limit := c.options.maxHold; err == nil && limit > 0 {
			l.hold.limitTo(limit)
		}
		c.reportFailed(ctx, err)
	}
	return l, err
}

func (c *call) reportStarted(ctx context.Context) {
	if hook := c.options.trace.Started; hook != nil {
		hook(orBackground(ctx), StartedInfo{Recipe: c.recipe, Lock: c.name, Mode: c.want.mode(), Try: c.try})
	}
}

func (c *call) reportFailed(ctx context.Context, err error) {
	if hook := c.options.trace.Failed; err != nil && hook != nil {
		hook(orBackground(ctx), FailedInfo{
			Recipe: c.recipe, Lock: c.name, Node: c.progress.now().node, Mode: c.want.mode(), Try: c.try, Waited: c.elapsed(), Err: err,
		})
	}
}

func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

func (q *queue) usable(ctx context.Context) error {
	if ctx == nil {
		return lockError(q.name, errors.New("nil context"))
	}
	return q.err
}

func (c *call) obtain(ctx context.Context) (*Lock, error) {
	if err := c.client.beginRequest(); err != nil {
		return nil, lockError(c.name, err)
	}
	defer c.client.endCall()
	if c.options.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, c.options.timeout)
		defer cancel()
		ctx = limited
	}
	l, err := c.contend(ctx)
	if err != nil {
		return nil, err
	}
	c.reportGranted(ctx, l)
	return l, nil
}

// contend waits in the queue until it holds the lock. It rejoins if its session
// or node is lost. On error no node is left.
func (c *call) contend(ctx context.Context) (*Lock, error) {
	if c.client.live.Load() == nil {
		defer c.client.watchSilence().Stop()
	}
	defer func() {
		if c.slow != nil {
			c.slow.Stop()
		}
	}()
	for {
		l, err := c.contendOnce(ctx)
		if err == nil {
			return l, nil
		}
		if err := c.retry(ctx, err); err != nil {
			return nil, err
		}
	}
}

// contendOnce is one attempt of contend. If it fails or panics, the node is
// removed, in the background if necessary.
func (c *call) contendOnce(ctx context.Context) (l *Lock, err error) {
	if ctx.Err() != nil {
		return nil, entry.ErrCallOver
	}
	e, err := c.newEntry(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		// Abandon even after ErrVanished, because the node may exist although
		// a server has listed the queue without it.
		if l == nil {
			e.Abandon()
		}
	}()
	c.reportQueued(ctx, e.Place())
	if err := c.awaitTurn(ctx, e); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, entry.ErrCallOver
	}
	return c.grant(e)
}

// newEntry joins the queue. TryLock lists the queue first, so that it rarely
// creates a node only to delete it.
func (c *call) newEntry(ctx context.Context) (e *entry.Entry, err error) {
	err = c.client.onSession(ctx, func(s *session) error {
		if c.try {
			nodes, err := s.List(ctx, c.name)
			if err != nil {
				return err
			}
			c.warnOfUnits(nodes)
			if len(c.want.rule(nodes)) > 0 {
				return ErrLocked
			}
		}
		e, err = entry.Join(ctx, s.Grants, c.entryQueue, entry.Spec{
			Prefix:    c.prefix(c.want),
			Data:      newRecord(c.began, c.options.record),
			Rule:      c.want.rule,
			Exclusive: c.want.exclusive,
			Waits:     !c.try,
		})
		return err
	})
	return e, err
}

func (q *queue) prefix(w *want) string { return q.options.host + w.kind }

// awaitTurn waits until no other node blocks the entry. TryLock fails instead.
func (c *call) awaitTurn(ctx context.Context, e *entry.Entry) error {
	if e.Alone() {
		return nil
	}
	if !c.try {
		if err := c.checkLength(ctx, e); err != nil {
			return err
		}
		return e.Wait(ctx, c)
	}
	blocked, err := e.Blocked(ctx)
	if blocked {
		return ErrLocked
	}
	return err
}

func (c *call) checkLength(ctx context.Context, e *entry.Entry) error {
	if c.options.maxQueue <= 0 || c.queued {
		return nil
	}
	ahead, err := e.Ahead(ctx)
	if err != nil {
		return err
	}
	if len(c.want.rule(ahead)) > 0 && len(ahead) >= c.options.maxQueue {
		return fmt.Errorf("%w: %d ahead, and the limit of WithMaxQueue is %d", ErrQueueFull, len(ahead), c.options.maxQueue)
	}
	c.queued = true
	return nil
}

// retry returns nil if the call should try again after err, perhaps after a
// pause. Otherwise it returns the error for the caller.
func (c *call) retry(ctx context.Context, err error) error {
	switch err.(type) {
	case *namedError, *timeoutError:
		return err // Pause has already ended the call
	}
	switch {
	case c.client.drains():
		return lockError(c.name, ErrClosed)
	case ctx.Err() != nil:
		c.unanswered(err)
		return c.interrupted(ctx)
	case errors.Is(err, entry.ErrVanished) && !c.vanished:
		c.vanished = true
		c.reportRetry(ctx, err, 0)
		return nil
	case errors.Is(err, entry.ErrVanished), errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrSessionEnded):
		if c.try {
			return lockError(c.name, unavailable(err))
		}
		if errors.Is(err, driver.ErrSessionEnded) {
			err = unavailable(err) // should match ErrUnavailable if ctx ends meanwhile
		}
		return c.Pause(ctx, err)
	}
	return lockError(c.name, err)
}

// Pause sleeps between retries of a failed request. It returns an error if the
// back-off gives up, ctx ends or the client is closed.
func (c *call) Pause(ctx context.Context, err error) error {
	c.noteError(err)
	if c.retries == nil {
		c.retries = &entry.Retries{New: c.options.backOff}
	}
	delay := c.retries.Next()
	if delay < 0 {
		return lockError(c.name, fmt.Errorf("gave up after %v: %w", c.waited(), err))
	}
	c.reportRetry(ctx, err, delay)
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return c.interrupted(ctx)
	case <-c.client.draining:
		return lockError(c.name, ErrClosed)
	}
}

// Answered resets the back-off, because the store has listed the queue.
func (c *call) Answered(ahead []driver.Node) {
	c.succeeded()
	c.warnOfUnits(ahead)
}

func (c *call) succeeded() {
	if c.retries != nil {
		c.noteError(nil)
		c.retries.Succeeded()
	}
}

func (c *call) grant(e *entry.Entry) (*Lock, error) {
	if !c.client.holds.begin() {
		return nil, ErrClosed
	}
	h, l := newHold(c.queue, c.want, e)
	if err := e.Grant(h.tellLoss); err != nil {
		c.client.holds.end()
		return nil, err
	}
	if c.want.settledKind != "" {
		c.settle(e)
	}
	return l, nil
}

func (c *call) reportQueued(ctx context.Context, place driver.Place) {
	c.succeeded()
	c.progress.set(func(p *snapshot) { p.node = place.Name })
	if hook := c.options.trace.Queued; hook != nil {
		hook(ctx, QueuedInfo{Recipe: c.recipe, Lock: c.name, Place: place})
	}
}

// reportGranted runs the Granted hook. If the hook panics, reportGranted
// unlocks the Lock, because no caller will get it.
func (c *call) reportGranted(ctx context.Context, l *Lock) {
	returned := false
	defer func() {
		l.hold.grantReported(ctx)
		if !returned {
			_ = l.Unlock()
		}
	}()
	if hook := c.options.trace.Granted; hook != nil {
		p := l.hold.entry.Place()
		hook(ctx, GrantedInfo{Recipe: c.recipe, Lock: c.name, Node: p.Name, Mode: c.want.mode(), Try: c.try, Token: p.Token, Waited: c.elapsed()})
	}
	returned = true
}

func (c *call) elapsed() time.Duration { return time.Since(c.began) }
