package recipes

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/recipes/internal/engine"
)

type waiter struct {
	want    *want
	granted chan *Lock
	failed  chan error
	queued  bool // guarded by cohort.mu; see call.queued
}

// cohortCall contends for a node on behalf of all waiters of a cohort. A waiter
// that gives up therefore does not cost the others their position in the queue.
type cohortCall struct {
	*call
	cancel context.CancelFunc
	ended  chan struct{}

	// Guarded by cohort.mu:
	wanted    *want // what the call contends for
	cancelled bool
}

func (c *cohort) enter(ctx context.Context, call *call) (*Lock, error) {
	for {
		l, err := c.enterOnce(ctx, call)
		if err != nil {
			return nil, err
		}
		if l, err = c.confirm(ctx, call, l); l != nil || err != nil {
			return l, err
		}
	}
}

// enterOnce waits until the cohort grants the lock to the call.
func (c *cohort) enterOnce(ctx context.Context, call *call) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, call.interrupted(ctx)
	}
	c.mu.Lock()
	if len(c.waiters) == 0 && c.shared != nil {
		if l := c.shared.admit(call.want); l != nil {
			c.mu.Unlock()
			return l, nil
		}
	}
	removed := c.removeUnused()
	if ended := c.unwanted(); call.try && ended != nil {
		c.mu.Unlock()
		if err := c.awaitRemoval(ctx, call, ended); err != nil {
			return nil, err
		}
		return c.enterOnce(ctx, call)
	}
	if call.try {
		taken := c.shared != nil || c.contending != nil
		c.mu.Unlock()
		if err := c.awaitRemoval(ctx, call, removed); err != nil {
			return nil, err
		}
		return c.tryEnter(ctx, call, taken)
	}
	w := &waiter{want: call.want, granted: make(chan *Lock, 1), failed: make(chan error, 1), queued: c.inUse()}
	if ahead := c.ahead(); call.options.maxQueue > 0 && ahead >= call.options.maxQueue {
		c.mu.Unlock()
		return nil, lockError(call.name, call.options.queueFull(ahead))
	}
	c.waiters = append(c.waiters, w)
	if c.shared != nil {
		for _, h := range c.shared.holds {
			h.tellWanted()
		}
	}
	if removed == nil { // otherwise contend after the removal
		c.contendForAll()
	}
	c.mu.Unlock()
	return c.awaitLock(ctx, call, w)
}

// inUse reports whether the cohort has an entry, contends for one or has
// waiters. It is called with mu held.
func (c *cohort) inUse() bool { return c.shared != nil || c.contending != nil || len(c.waiters) > 0 }

// ahead returns the known number of contenders ahead of a new call. It is
// called with mu held.
func (c *cohort) ahead() int {
	n := len(c.waiters)
	if c.shared != nil {
		n += len(c.shared.holds)
	}
	if c.contending != nil {
		n += max(0, c.contending.progress.now().view.Position-1)
	}
	return n
}

// awaitRemoval waits for removed to close or the call to end. If removed is
// nil, it returns at once.
func (c *cohort) awaitRemoval(ctx context.Context, call *call, removed <-chan struct{}) error {
	if removed == nil {
		return nil
	}
	select {
	case <-removed:
		return nil
	case <-ctx.Done():
		return call.interrupted(ctx)
	case <-call.client.draining:
		return lockError(call.name, ErrClosed)
	}
}

func (c *cohort) awaitLock(ctx context.Context, call *call, w *waiter) (*Lock, error) {
	slow, stop := slowTimer(ctx, call)
	defer stop()
	for {
		select {
		case l := <-w.granted:
			return l, nil
		case err := <-w.failed:
			return nil, err
		case <-slow:
			c.logSlow(call)
		case <-ctx.Done():
			c.giveUp(call, w)
			return nil, call.interrupted(ctx)
		case <-call.client.draining:
			c.giveUp(call, w)
			return nil, lockError(call.name, ErrClosed)
		}
	}
}

func slowTimer(ctx context.Context, call *call) (c <-chan time.Time, stop func() bool) {
	if !call.logsSlow(ctx) {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(slowAfter - call.elapsed())
	return t.C, t.Stop
}

// logSlow logs a long wait for another goroutine of the same client. Waits for
// other clients are logged by cohortCall.
func (c *cohort) logSlow(call *call) {
	c.mu.Lock()
	shared := c.shared
	c.mu.Unlock()
	if shared == nil {
		return
	}
	node := shared.entry.Place().Name
	call.options.logger.Debug("dlock: still waiting", "lock", call.name, "recipe", call.recipe, "behind", node, "holder", node,
		"waited", call.waited())
}

// giveUp removes a waiter whose context has ended, and unlocks the Lock if one
// was granted meanwhile. The last waiter briefly waits for the cohort's node to
// be removed.
func (c *cohort) giveUp(call *call, w *waiter) {
	c.mu.Lock()
	i := slices.Index(c.waiters, w)
	if i < 0 {
		c.mu.Unlock()
		select {
		case l := <-w.granted:
			c.discard(l)
		case <-w.failed:
		}
		return
	}
	c.noteProgress(call, i)
	c.waiters = slices.Delete(c.waiters, i, i+1)
	c.fitCall()
	c.admitWaiters() // w may have blocked the waiters behind it
	ended := c.unwanted()
	c.mu.Unlock()
	if ended != nil {
		awaitBriefly(ended)
	}
}

// noteProgress records what waiter i has been waiting for, to be included in
// its error. It is called with mu held.
func (c *cohort) noteProgress(call *call, i int) {
	var p snapshot
	switch {
	case c.contending != nil:
		p = c.contending.progress.now()
		if p.view.Behind == "" && p.last == nil {
			p.last = errNoAnswer // its Create has not been answered yet
		}
		p.view.Position += i
	case c.shared != nil:
		node := c.shared.entry.Place().Name
		p.view.First, p.view.Behind, p.view.Position = node, node, 2+i
	}
	call.progress.set(func(own *progress) { own.view, own.last = p.view, p.last })
}

// discard unlocks a Lock that arrived after its caller gave up. It waits only
// briefly for the Unlock, which continues in the background.
func (c *cohort) discard(l *Lock) {
	unlocked := make(chan struct{})
	unlock := func() {
		defer close(unlocked)
		_ = l.Unlock()
	}
	// When the client is being closed, Unlock returns without waiting for the
	// store.
	if !c.queue.client.spawn(unlock) {
		unlock()
		return
	}
	awaitBriefly(unlocked)
}

// confirm rechecks the context and the lease just before a Lock is returned. If
// the Lock was lost meanwhile, it returns nil, nil, and the caller waits again.
func (c *cohort) confirm(ctx context.Context, call *call, l *Lock) (*Lock, error) {
	err := ctx.Err()
	switch {
	case l.hold.ended() != nil:
		c.discard(l)
		return nil, nil
	case err != nil:
		err = call.interrupted(ctx)
	case !l.hold.enlist():
		err = lockError(call.name, ErrClosed)
	}
	if err != nil {
		c.discard(l)
		return nil, err
	}
	call.reportGranted(ctx, l)
	return l, nil
}

// contendForAll starts a cohortCall if waiters have no entry to wait for. It is
// called with mu held.
func (c *cohort) contendForAll() {
	if c.shared != nil || c.contending != nil || len(c.waiters) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	call := newCall(c.queue, c.waiters[0].want)
	call.share = make(chan struct{})
	call.queued, c.waiters[0].queued = c.waiters[0].queued, true
	shared := &cohortCall{call: call, cancel: cancel, ended: make(chan struct{}), wanted: call.want}
	c.contending = shared
	c.addUser()
	spawned := c.queue.client.spawn(func() {
		defer c.unuse()
		defer close(shared.ended)
		defer cancel()
		s, err := c.contendShared(ctx, call)
		c.callEnded(ctx, s, err)
	})
	// If nothing was spawned, the client is closing, which ends the
	// waiters' calls, too.
	if !spawned {
		cancel()
		close(shared.ended)
		c.unuse()
	}
}

func (c *cohort) contendAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contendForAll()
}

func (c *cohort) contendShared(ctx context.Context, call *call) (*sharedEntry, error) {
	s := &sharedEntry{cohort: c}
	if err := call.contend(ctx, func(e *engine.Entry) error { return s.ownEntry(call.want, e) }); err != nil {
		return nil, err
	}
	return s, nil
}

// callEnded handles the result of a cohortCall. A granted entry is passed to
// the waiters, and an error fails all of them. If the entry is already lost or
// the call was cancelled, the remaining waiters contend again.
func (c *cohort) callEnded(ctx context.Context, s *sharedEntry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contending = nil
	switch {
	case err == nil && c.install(s):
		if c.passOn(s) {
			c.queue.client.spawn(func() { _ = s.removeNode() })
		}
	case err == nil: // the entry is lost already
		c.contendForAll()
	case ctx.Err() != nil: // cancelled by fitCall
		c.contendForAll()
	default:
		for _, w := range c.waiters {
			w.failed <- err
		}
		c.waiters = nil
	}
}

// install makes s the cohort's entry, unless it is already lost. It is called
// with mu held.
func (c *cohort) install(s *sharedEntry) bool {
	if s.entry.Loss() != nil { // a loss after this check reaches tellHolds
		return false
	}
	c.addUser()
	c.shared = s
	s.watchOthers()
	return true
}

// fitCall adapts the contending call to the first waiter, after another waiter
// gave up. If the call contends for a writer but the first waiter is now a
// reader, it continues as a reader. If it cannot serve the first waiter, it is
// cancelled. fitCall is called with mu held.
func (c *cohort) fitCall() {
	call := c.contending
	switch {
	case call == nil || call.cancelled:
	case len(c.waiters) > 0 && c.waiters[0].want == call.wanted:
	case len(c.waiters) > 0 && c.waiters[0].want == call.wanted.downgraded:
		call.wanted = call.wanted.downgraded
		close(call.share)
	default:
		call.cancelled = true
		call.cancel()
	}
}

// unwanted returns a channel that closes when a cancelled contending call has
// ended. It returns nil if there is none, or if there are still waiters. It is
// called with mu held.
func (c *cohort) unwanted() <-chan struct{} {
	if call := c.contending; call != nil && call.cancelled && len(c.waiters) == 0 {
		return call.ended
	}
	return nil
}

// tryEnter implements TryLock. It fails if taken is true, which means that the
// cohort already has an entry or contends for one. A granted entry becomes the
// cohort's, unless the cohort got another one meanwhile.
func (c *cohort) tryEnter(ctx context.Context, call *call, taken bool) (*Lock, error) {
	if taken {
		return nil, lockError(call.name, ErrLocked)
	}
	s, err := c.contendShared(ctx, call)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == nil && c.contending == nil && c.install(s) {
		s.turns = 1
	}
	return s.lend(call.want), nil
}
