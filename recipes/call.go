package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// attempt is one call of Lock, RLock, TryLock or TryRLock that contends in the
// queue. It makes one entry after another until one is granted or the call has
// to end. An entry is a node in the queue, with what the client knows about it.
type attempt struct {
	m     *RWMutex
	mode  Mode
	try   bool
	began time.Time

	progress progress
	retries  engine.Retries
	restarts int           // how often the node of an entry had vanished from the queue
	slow     *time.Timer   // when slowAfter has passed, logs that the call still waits
	share    chan struct{} // closed if the attempt has to go on in the mode Shared; nil: it never has to
}

func newAttempt(m *RWMutex, mode Mode) *attempt {
	return &attempt{m: m, mode: mode, began: time.Now(), retries: engine.Retries{New: m.options.backOff}}
}

func (m *RWMutex) lock(ctx context.Context, mode Mode, try bool) (*Lock, error) {
	if m == nil || m.client == nil {
		return nil, errNoClient
	}
	a := newAttempt(m, mode)
	a.try = try
	l, err := m.acquire(ctx, a)
	if hook := m.options.trace.Failed; err != nil && hook != nil {
		if ctx == nil {
			ctx = context.Background()
		}
		hook(ctx, FailedInfo{Lock: m.name, Node: a.progress.now().node, Mode: mode, Try: try, Waited: a.elapsed(), Err: err})
	}
	return l, err
}

func (m *RWMutex) acquire(ctx context.Context, a *attempt) (*Lock, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	if l, err := m.reenter(ctx, a.mode); l != nil || err != nil {
		return l, err
	}
	if err := m.client.beginCall(); err != nil {
		return nil, lockError(m.name, err)
	}
	defer m.client.endCall()
	if m.options.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, m.options.timeout)
		defer cancel()
		ctx = limited
	}
	from, done := m.acquirer()
	defer done()
	return from.acquire(ctx, a)
}

// acquirer gets a lock for a call that is not a re-entry. There are two kinds:
// a contention has a node for this call alone, and the calls of a cohort share
// a node.
type acquirer interface {
	acquire(ctx context.Context, a *attempt) (*Lock, error)
}

// acquirer returns the value whose method acquire gets the lock for one call of
// Lock, RLock, TryLock or TryRLock. If the lock has retention, this is the
// client's cohort. Otherwise it is a new contention. When the call ends, it has
// to run the function done.
func (m *RWMutex) acquirer() (from acquirer, done func()) {
	if m.options.retention == nil {
		return new(contention), func() {}
	}
	c := m.client.cohorts.use(m)
	return c, c.unuse
}

// granter grants an entry that no node blocks, to the call itself or to its
// cohort. If the entry's Grant fails, grant returns its error.
type granter interface {
	grant(ctx context.Context, a *attempt, e *engine.Entry) error
}

// run contends until an entry is granted or there is a reason to give up.
func (a *attempt) run(ctx context.Context, g granter) error {
	defer a.stopSlow()
	for {
		err := a.once(ctx, g)
		if err == nil {
			return nil
		}
		if err := a.again(ctx, err); err != nil {
			return err
		}
	}
}

// once contends with one entry. If once returns an error or panics, the entry's
// node is not in the queue, or is being removed.
func (a *attempt) once(ctx context.Context, g granter) error {
	if ctx.Err() != nil {
		return engine.ErrCallOver
	}
	select {
	case <-a.share:
		a.mode = Shared
	default:
	}
	e, err := a.join(ctx)
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
	a.queued(ctx, e.Place())
	err = a.wait(ctx, e)
	if errors.Is(err, engine.ErrInterrupted) {
		err = a.waitShared(ctx, e)
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return engine.ErrCallOver
	}
	err = g.grant(ctx, a, e)
	granted = err == nil
	return err
}

// join makes a node in the queue.
func (a *attempt) join(ctx context.Context) (e *engine.Entry, err error) {
	err = a.m.client.onSession(ctx, func(s *session) error {
		e, err = a.create(ctx, s)
		return err
	})
	return e, err
}

func (a *attempt) create(ctx context.Context, s *session) (*engine.Entry, error) {
	if a.try {
		nodes, err := s.List(ctx, a.m.name)
		if err != nil {
			return nil, err
		}
		if !free(nodes, a.mode) {
			return nil, ErrLocked // the call ends without a node in the queue
		}
	}
	return engine.Join(ctx, s.Session, a.m.queue, engine.Spec{
		Prefix:    a.m.options.prefix[a.mode],
		Data:      newRecord(a.began, a.m.options.record),
		Blocks:    rules[a.mode],
		Exclusive: a.mode == Exclusive,
		Waits:     !a.try,
	})
}

// wait returns nil once no node blocks the entry. A call of TryLock or TryRLock
// looks at the queue only once, and gets ErrLocked if a node blocks the entry.
func (a *attempt) wait(ctx context.Context, e *engine.Entry) error {
	if e.Alone() {
		return nil
	}
	if !a.try {
		return e.Wait(ctx, a)
	}
	blocked, err := e.Blocked(ctx)
	if blocked {
		return ErrLocked
	}
	return err
}

// waitShared goes on with the wait of a writer's entry as with one of a reader. If
// the driver cannot rename the node, the attempt makes another.
func (a *attempt) waitShared(ctx context.Context, e *engine.Entry) error {
	a.mode = Shared
	if err := e.WaitAs(ctx, a.m.options.prefix[Shared], rules[Shared]); err != nil {
		return errNotRenamed
	}
	a.progress.set(func(p *progress) { p.node = e.Place().Name })
	return a.wait(ctx, e)
}

// Interrupt ends the wait of a writer's entry when share closes.
func (a *attempt) Interrupt() <-chan struct{} {
	if a.mode == Shared {
		return nil
	}
	return a.share
}

var errNotRenamed = errors.New("the writer's node cannot become a reader's")

// The method again is called after an error. It decides whether the call
// contends once more. If so, it returns nil, in most cases after the pause that
// the back-off asks for. Otherwise it returns the error with which the call
// ends.
func (a *attempt) again(ctx context.Context, err error) error {
	switch err.(type) {
	case *namedError, *timeoutError:
		return err // this is an error that Pause has returned
	}
	switch {
	case a.m.client.closedOr(nil) != nil:
		return lockError(a.m.name, ErrClosed)
	case ctx.Err() != nil:
		a.unanswered(err)
		return a.interrupted(ctx)
	case errors.Is(err, errNotRenamed):
		return nil
	case errors.Is(err, engine.ErrVanished) && a.restarts == 0:
		a.restarts++
		a.retrying(ctx, err, 0)
		return nil
	case errors.Is(err, engine.ErrVanished), errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrSessionEnded):
		if a.try {
			return lockError(a.m.name, unavailable(err))
		}
		if errors.Is(err, driver.ErrSessionEnded) {
			err = unavailable(err) // if the call ends before it has another session
		}
		return a.Pause(ctx, err)
	}
	return lockError(a.m.name, err)
}

// Pause waits after an error of the store, for as long as the back-off says. It
// returns an error if the call has to end, because the back-off gives up, ctx
// has ended, or the client is closed.
func (a *attempt) Pause(ctx context.Context, err error) error {
	a.failed(err)
	delay := a.retries.Next()
	if delay < 0 {
		return lockError(a.m.name, fmt.Errorf("gave up after %v: %w", a.waited(), err))
	}
	a.retrying(ctx, err, delay)
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return a.interrupted(ctx)
	case <-a.m.client.done:
		return lockError(a.m.name, ErrClosed)
	}
}

// Answered is called when the store has answered. It forgets the last error of
// the store, and the next error begins a new back-off.
func (a *attempt) Answered() {
	a.failed(nil)
	a.retries.Succeeded()
}

// contention is the acquirer of a call that contends in the queue by itself,
// with an entry of its own.
type contention struct{ lock *Lock }

func (c *contention) acquire(ctx context.Context, a *attempt) (*Lock, error) {
	if err := a.run(ctx, c); err != nil {
		return nil, err
	}
	a.announce(ctx, c.lock)
	return c.lock, nil
}

// grant makes the hold and the Lock of the call, and grants the entry to the
// hold.
func (c *contention) grant(_ context.Context, a *attempt, e *engine.Entry) error {
	h, l := newHold(a.m, e, ownEntry{e}, a.mode)
	c.lock = l
	return e.Grant(h)
}

// announce calls the hook Granted for a Lock that the call is about to return. If
// a hook panics, announce unlocks the Lock.
func (a *attempt) announce(ctx context.Context, l *Lock) {
	returned := false
	defer func() {
		if !returned {
			_ = l.Unlock()
		}
	}()
	l.hold.announce(ctx, a.m.options.trace, func() { a.reportGranted(ctx, l.hold.entry) })
	returned = true
}

func (a *attempt) queued(ctx context.Context, p driver.Place) {
	a.Answered()
	a.progress.set(func(own *progress) { own.node = p.Name })
	if hook := a.m.options.trace.Queued; hook != nil {
		hook(ctx, QueuedInfo{Lock: a.m.name, Place: p})
	}
}

// reportGranted calls the hook Granted of the RWMutex that the call was made
// on. The RWMutex of the hold may be another one of the same name, if the hold
// belongs to a cohort.
func (a *attempt) reportGranted(ctx context.Context, e *engine.Entry) {
	if hook := a.m.options.trace.Granted; hook != nil {
		p := e.Place()
		hook(ctx, GrantedInfo{Lock: a.m.name, Node: p.Name, Mode: a.mode, Token: p.Token, Waited: a.elapsed()})
	}
}

func (a *attempt) elapsed() time.Duration { return time.Since(a.began) }

// ownEntry lends an entry to its only hold.
type ownEntry struct{ entry *engine.Entry }

func (ownEntry) becameShared() {}

func (o ownEntry) giveBack(*hold) error { return o.entry.Remove(unlockTimeout) }
