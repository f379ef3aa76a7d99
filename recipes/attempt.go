package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// attempt is one call of Lock, RLock, TryLock or TryRLock.
type attempt struct {
	m     *RWMutex
	mode  Mode
	try   bool
	began time.Time

	node     string // its own, the last one
	sight           // of the queue, the last one
	last     error  // of the store, since it answered last
	told     bool   // the log knows that the call waits for long
	retries  retries
	retainer *retainer // on whose behalf, and
	pursuit  *pursuit  // in what; nil where it is one's own
	traced   bool      // the grant was
	restarts int       // because the node had vanished from the queue
}

// sight is what a waiter has seen of the queue when it listed it.
type sight struct {
	holder   string // the first node
	behind   string // the node that was in the way; empty before the queue was joined
	position int    // of the own node, from 1
	seen     time.Time
}

// run contends until the lock is won or there is a reason to give up.
func (a *attempt) run(ctx context.Context) (*Lock, error) {
	a.began = time.Now()
	a.retries.newBackOff = a.m.options.backOff
	for {
		l, err := a.once(ctx)
		if err == nil {
			return l, nil
		}
		if err := a.again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// once contends with one node. The node is in the queue when once returns a lock.
// It is not, or is about to be deleted, when once returns an error or panics.
func (a *attempt) once(ctx context.Context) (l *Lock, err error) {
	if ctx.Err() != nil {
		return nil, errCallOver
	}
	s, joined, err := a.join(ctx)
	if err != nil {
		return nil, err
	}
	defer joined.Watch.Stop()
	// Only a copy of the place is used below: joined may hold a long list, which is
	// not to be kept while the call waits.
	place := joined.Place
	defer func() {
		// Also a node that was not listed: the server that listed may be wrong.
		if l == nil {
			a.m.abandon(s, place)
		}
	}()
	a.queued(ctx, place)
	if !joined.Alone() {
		if err := a.queue(ctx, s, joined); err != nil {
			return nil, err
		}
	}
	return a.grant(ctx, s, place)
}

// join makes a node in the queue. That a session has ended may show only when it is used, as after a
// sleep of the machine: then another one is taken at once.
func (a *attempt) join(ctx context.Context) (s *session, joined driver.Joined, err error) {
	for range 2 {
		if s, err = a.m.client.get(ctx); err != nil {
			return nil, driver.Joined{}, err
		}
		if joined, err = a.create(ctx, s); !errors.Is(err, driver.ErrSessionEnded) {
			break
		}
	}
	return s, joined, err
}

func (a *attempt) create(ctx context.Context, s *session) (driver.Joined, error) {
	n := driver.NodeSpec{Prefix: a.m.options.prefix[a.mode], Data: newRecord(a.began, a.m.options.record)}
	if a.try {
		if err := a.look(ctx, s); err != nil {
			return driver.Joined{}, err
		}
	} else if a.m.options.wait.kind == watchPredecessor {
		n.Predecessor = behind[a.mode]
	}
	return s.Create(ctx, a.m.name, n)
}

// look fails with ErrLocked, before anything is written, if the lock is not free.
func (a *attempt) look(ctx context.Context, s *session) error {
	nodes, err := s.List(ctx, a.m.name)
	if err != nil {
		return err
	}
	if !free(nodes, a.mode) {
		return ErrLocked
	}
	return nil
}

// grant turns a place at the head into a lock, unless the session or ctx ended meanwhile.
func (a *attempt) grant(ctx context.Context, s *session, place driver.Place) (*Lock, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errCallOver
	}
	h := newHold(a.m, s, place, a.mode, a.began.Add(time.Since(a.began)))
	h.retainer = a.retainer
	if a.pursuit == nil {
		h.ownTurn.granted(ctx, a.m.options.trace)
	}
	if err := s.add(h); err != nil {
		return nil, err
	}
	if hook := a.m.options.trace.Granted; hook != nil && a.pursuit == nil {
		a.granted(ctx, h, hook)
	}
	return &h.own, nil
}

func (a *attempt) granted(ctx context.Context, h *hold, hook func(context.Context, GrantedInfo)) {
	returned := false
	defer func() {
		if !returned { // the hook has panicked
			h.discard()
		}
	}()
	hook(ctx, GrantedInfo{Lock: a.m.name, Node: h.own.Node(), Mode: a.mode, Token: h.token, Waited: h.since.Sub(a.began)})
	returned = true
}

// again decides whether an error is worth another attempt. If so it waits as long as the
// back-off says and returns nil.
func (a *attempt) again(ctx context.Context, err error) error {
	switch err.(type) {
	case *namedError, *timeoutError:
		return err // it was decided in the queue
	}
	switch {
	case a.m.client.closedOr(nil) != nil:
		return lockError(a.m.name, ErrClosed)
	case ctx.Err() != nil:
		a.unanswered(err)
		return a.interrupted(ctx)
	case errors.Is(err, errStartOver) && a.restarts == 0:
		a.restarts++
		a.retrying(ctx, err, 0)
		return nil
	case errors.Is(err, errStartOver), errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrSessionEnded):
		if a.try {
			return lockError(a.m.name, unavailable(err))
		}
		return a.pause(ctx, err)
	}
	return lockError(a.m.name, err)
}

// unavailable returns an error that may pass so that it says so.
func unavailable(err error) error {
	if errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// unanswered notes that a request was under way when the context of the call
// ended, if err says so.
func (a *attempt) unanswered(err error) {
	switch {
	case errors.Is(err, driver.ErrUnavailable):
		a.last = err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		a.last = errNoAnswer
	}
}

// pause waits before the store is asked again. It returns why there is no point in it.
func (a *attempt) pause(ctx context.Context, err error) error {
	a.last = err
	a.note()
	delay := a.retries.next()
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

// succeeded is called when the store has answered after errors.
func (a *attempt) succeeded() {
	a.last = nil
	a.retries.succeeded()
}

// interrupted returns the error for a context that has ended. Its cause comes along: it tells
// that another lock was lost or unlocked whose context this was.
func (a *attempt) interrupted(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrLost), errors.Is(cause, ErrNotHeld):
		return lockError(a.m.name, because(ctx, err))
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
	last := a.last
	if reason := a.m.client.unreached(); reason != nil && a.behind == "" && (last == nil || last == errNoAnswer) {
		last = reason
	}
	err := &timeoutError{lock: a.m.name, after: after, holder: a.holder, ahead: a.position - 1, last: last}
	if mine := a.m.client.holds(a.m.name); mine != "" && a.behind != "" {
		err.holder, err.mine = mine, true
	} else if a.holder != a.behind && a.m.options.wait.kind == watchPredecessor {
		err.asOf = time.Since(a.seen).Round(time.Millisecond)
	}
	return err
}

func (a *attempt) waited() time.Duration { return time.Since(a.began).Round(time.Millisecond) }

func (a *attempt) queued(ctx context.Context, p driver.Place) {
	a.succeeded()
	a.node = p.Name
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
