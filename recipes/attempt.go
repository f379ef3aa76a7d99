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

func newAttempt(m *RWMutex, mode Mode) *attempt {
	return &attempt{m: m, mode: mode, began: time.Now(), retries: engine.Retries{New: m.options.backOff}}
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

// failed keeps an error of the store until the store has answered.
func (a *attempt) failed(err error) { a.progress.set(func(p *progress) { p.last = err }) }

// Answered is called when the store has answered. It forgets the last error of
// the store, and the next error begins a new back-off.
func (a *attempt) Answered() {
	a.failed(nil)
	a.retries.Succeeded()
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

func (a *attempt) elapsed() time.Duration { return time.Since(a.began) }

func (a *attempt) waited() time.Duration { return a.elapsed().Round(time.Millisecond) }

func (a *attempt) queued(ctx context.Context, p driver.Place) {
	a.Answered()
	a.progress.set(func(own *progress) { own.node = p.Name })
	if hook := a.m.options.trace.Queued; hook != nil {
		hook(ctx, QueuedInfo{Lock: a.m.name, Place: p})
	}
}

func (a *attempt) retrying(ctx context.Context, err error, delay time.Duration) {
	a.m.options.logger.Warn("dlock: trying again", "lock", a.m.name, "in", delay, "error", err)
	if hook := a.m.options.trace.Retrying; hook != nil {
		hook(ctx, RetryingInfo{Lock: a.m.name, Err: err, Delay: delay})
	}
}
