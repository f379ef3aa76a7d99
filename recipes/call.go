package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// call is one call of Lock, RLock, TryLock or TryRLock that contends in the
// queue. It makes one entry after another until one is granted or the call has
// to end. An entry is a node in the queue, with what the client knows about it.
type call struct {
	*queue
	want  *want
	try   bool
	began time.Time

	progress progress
	retries  engine.Retries
	restarts int           // how often the node of an entry had vanished from the queue
	slow     *time.Timer   // when slowAfter has passed, logs that the call still waits
	share    chan struct{} // closed if the call has to go on with want.downgraded; nil: it never has to
}

func newCall(q *queue, w *want) *call {
	return &call{queue: q, want: w, began: time.Now(), retries: engine.Retries{New: q.options.backOff}}
}

// acquire is the body of Lock, RLock, TryLock and TryRLock.
func (q *queue) acquire(ctx context.Context, w *want, try bool) (*Lock, error) {
	c := newCall(q, w)
	c.try = try
	l, err := q.obtain(ctx, c)
	if hook := q.options.trace.Failed; err != nil && hook != nil {
		if ctx == nil {
			ctx = context.Background()
		}
		hook(ctx, FailedInfo{Lock: q.name, Node: c.progress.now().node, Mode: w.mode(), Try: try, Waited: c.elapsed(), Err: err})
	}
	return l, err
}

// usable returns why a call with that context cannot use the queue, or nil.
func (q *queue) usable(ctx context.Context) error {
	if ctx == nil {
		return lockError(q.name, errors.New("nil context"))
	}
	return q.err
}

func (q *queue) obtain(ctx context.Context, c *call) (*Lock, error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	if l, err := q.reenter(ctx, c.want); l != nil || err != nil {
		return l, err
	}
	if err := q.client.beginCall(); err != nil {
		return nil, lockError(q.name, err)
	}
	defer q.client.endCall()
	if q.options.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, q.options.timeout)
		defer cancel()
		ctx = limited
	}
	from, done := q.acquirer()
	defer done()
	return from.acquire(ctx, c)
}

// acquirer gets a lock for a call that is not a re-entry. There are two kinds:
// a contention has a node for this call alone, and the calls of a cohort share
// a node.
type acquirer interface {
	acquire(ctx context.Context, c *call) (*Lock, error)
}

// acquirer returns the value whose method acquire gets the lock for one call of
// Lock, RLock, TryLock or TryRLock. If the lock has retention, this is the
// client's cohort. Otherwise it is a new contention. When the call ends, it has
// to run the function done.
func (q *queue) acquirer() (from acquirer, done func()) {
	if q.options.retention == nil {
		return new(contention), func() {}
	}
	c := q.client.cohorts.use(q)
	return c, c.unuse
}

// granter grants an entry that no node blocks, to the call itself or to its
// cohort. If the entry's Grant fails, grant returns its error.
type granter interface {
	grantEntry(ctx context.Context, c *call, e *engine.Entry) error
}

// contend contends until an entry is granted or there is a reason to give up.
func (c *call) contend(ctx context.Context, g granter) error {
	defer c.stopSlow()
	for {
		err := c.contendOnce(ctx, g)
		if err == nil {
			return nil
		}
		if err := c.retry(ctx, err); err != nil {
			return err
		}
	}
}

// contendOnce contends with one entry. If once returns an error or panics, the entry's
// node is not in the queue, or is being removed.
func (c *call) contendOnce(ctx context.Context, g granter) error {
	if ctx.Err() != nil {
		return engine.ErrCallOver
	}
	select {
	case <-c.Interrupt():
		c.want = c.want.downgraded
	default:
	}
	e, err := c.newEntry(ctx)
	if err != nil {
		return err
	}
	granted := false
	defer func() {
		// One error of wait says that a list of the queue did not show the node. The
		// node is removed in that case, too, because the server that made
		// the list may be wrong.
		if !granted {
			e.Abandon()
		}
	}()
	c.reportQueued(ctx, e.Place())
	err = c.awaitTurn(ctx, e)
	if errors.Is(err, engine.ErrInterrupted) {
		err = c.waitShared(ctx, e)
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return engine.ErrCallOver
	}
	err = g.grantEntry(ctx, c, e)
	granted = err == nil
	return err
}

// newEntry makes a node in the queue.
func (c *call) newEntry(ctx context.Context) (e *engine.Entry, err error) {
	err = c.client.onSession(ctx, func(s *session) error {
		e, err = c.createEntry(ctx, s)
		return err
	})
	return e, err
}

func (c *call) createEntry(ctx context.Context, s *session) (*engine.Entry, error) {
	if c.try {
		nodes, err := s.List(ctx, c.name)
		if err != nil {
			return nil, err
		}
		if c.want.rule(nodes) >= 0 {
			return nil, ErrLocked // the call ends without a node in the queue
		}
	}
	return engine.Join(ctx, s.Session, c.engine, engine.Spec{
		Prefix:    c.prefix(c.want),
		Data:      newRecord(c.began, c.options.record),
		Blocks:    c.want.rule,
		Exclusive: c.want.exclusive,
		Waits:     !c.try,
	})
}

// prefix returns what the names of a contender's nodes begin with.
func (q *queue) prefix(w *want) string { return q.options.host + w.kind }

// awaitTurn returns nil once no node blocks the entry. A call of TryLock or TryRLock
// looks at the queue only once, and gets ErrLocked if a node blocks the entry.
func (c *call) awaitTurn(ctx context.Context, e *engine.Entry) error {
	if e.Alone() {
		return nil
	}
	if !c.try {
		return e.Wait(ctx, c)
	}
	blocked, err := e.Blocked(ctx)
	if blocked {
		return ErrLocked
	}
	return err
}

// waitShared goes on with the wait of a writer's entry as with one of a reader. If
// the driver cannot rename the node, the attempt makes another.
func (c *call) waitShared(ctx context.Context, e *engine.Entry) error {
	c.want = c.want.downgraded
	if err := e.WaitAs(ctx, c.prefix(c.want), c.want.rule); err != nil {
		return errNotRenamed
	}
	c.progress.set(func(p *progress) { p.node = e.Place().Name })
	return c.awaitTurn(ctx, e)
}

// Interrupt ends the wait of a writer's entry when share closes.
func (c *call) Interrupt() <-chan struct{} {
	if c.want.downgraded == nil {
		return nil
	}
	return c.share
}

var errNotRenamed = errors.New("the writer's node cannot become a reader's")

// retry is called after an error. It decides whether the call
// contends once more. If so, it returns nil, in most cases after the pause that
// the back-off asks for. Otherwise it returns the error with which the call
// ends.
func (c *call) retry(ctx context.Context, err error) error {
	switch err.(type) {
	case *namedError, *timeoutError:
		return err // this is an error that Pause has returned
	}
	switch {
	case c.client.closedOr(nil) != nil:
		return lockError(c.name, ErrClosed)
	case ctx.Err() != nil:
		c.unanswered(err)
		return c.interrupted(ctx)
	case errors.Is(err, errNotRenamed):
		return nil
	case errors.Is(err, engine.ErrVanished) && c.restarts == 0:
		c.restarts++
		c.reportRetry(ctx, err, 0)
		return nil
	case errors.Is(err, engine.ErrVanished), errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrSessionEnded):
		if c.try {
			return lockError(c.name, unavailable(err))
		}
		if errors.Is(err, driver.ErrSessionEnded) {
			err = unavailable(err) // if the call ends before it has another session
		}
		return c.Pause(ctx, err)
	}
	return lockError(c.name, err)
}

// Pause waits after an error of the store, for as long as the back-off says. It
// returns an error if the call has to end, because the back-off gives up, ctx
// has ended, or the client is closed.
func (c *call) Pause(ctx context.Context, err error) error {
	c.noteError(err)
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
	case <-c.client.done:
		return lockError(c.name, ErrClosed)
	}
}

// Answered is called when the store has answered. It forgets the last error of
// the store, and the next error begins a new back-off.
func (c *call) Answered() {
	c.noteError(nil)
	c.retries.Succeeded()
}

// contention is the acquirer of a call that contends in the queue by itself,
// with an entry of its own.
type contention struct{ lock *Lock }

func (own *contention) acquire(ctx context.Context, c *call) (*Lock, error) {
	if err := c.contend(ctx, own); err != nil {
		return nil, err
	}
	c.reportGranted(ctx, own.lock)
	return own.lock, nil
}

// grantEntry makes the hold and the Lock of the call, and grants the entry to the
// hold.
func (own *contention) grantEntry(_ context.Context, c *call, e *engine.Entry) error {
	h, l := newHold(c.queue, c.want, e, ownEntry{e})
	own.lock = l
	return e.Grant(h)
}

// reportGranted calls the hook Granted for a Lock that the call is about to return. If
// a hook panics, announce unlocks the Lock.
func (c *call) reportGranted(ctx context.Context, l *Lock) {
	returned := false
	defer func() {
		if !returned {
			_ = l.Unlock()
		}
	}()
	l.hold.reportsEnd(ctx, c.options.trace, func() { c.traceGranted(ctx, l.hold.entry) })
	returned = true
}

func (c *call) reportQueued(ctx context.Context, p driver.Place) {
	c.Answered()
	c.progress.set(func(own *progress) { own.node = p.Name })
	if hook := c.options.trace.Queued; hook != nil {
		hook(ctx, QueuedInfo{Lock: c.name, Place: p})
	}
}

// traceGranted calls the hook Granted of the RWMutex that the call was made
// on. The RWMutex of the hold may be another one of the same name, if the hold
// belongs to a cohort.
func (c *call) traceGranted(ctx context.Context, e *engine.Entry) {
	if hook := c.options.trace.Granted; hook != nil {
		p := e.Place()
		hook(ctx, GrantedInfo{Lock: c.name, Node: p.Name, Mode: c.want.mode(), Token: p.Token, Waited: c.elapsed()})
	}
}

func (c *call) elapsed() time.Duration { return time.Since(c.began) }

// ownEntry lends an entry to its only hold.
type ownEntry struct{ entry *engine.Entry }

func (ownEntry) becameShared() {}

func (o ownEntry) takeBack(*hold) error { return o.entry.Remove(unlockTimeout) }
