package recipes

import (
	"context"
	"slices"
	"time"
)

// waiter is a call that waits for an entry of its cohort.
type waiter struct {
	mode    Mode
	granted chan *Lock // receives the Lock if the call gets it; capacity 1
	failed  chan error // receives the error if the call fails; capacity 1
}

// sharedAttempt contends for an entry on behalf of the waiters of a cohort. It
// goes on as long as there are waiters. So a waiter that gives up does not cost
// the others their position in the queue.
type sharedAttempt struct {
	*attempt
	cancel context.CancelFunc
	ended  chan struct{} // closed when the attempt has ended

	// Guarded by cohort.mu:
	wanted    Mode // the mode that the attempt contends in, or was told to contend in
	cancelled bool
}

// acquire gets a lock for a call of a goroutine of the cohort.
func (c *cohort) acquire(ctx context.Context, a *attempt) (*Lock, error) {
	for {
		l, err := c.acquireOnce(ctx, a)
		if err != nil {
			return nil, err
		}
		if l, err = c.accept(ctx, a, l); l != nil || err != nil {
			return l, err
		} // if both are nil, the lock was lost, and the call waits for another Lock
	}
}

// acquireOnce waits until the cohort grants the lock to this call, and returns
// the Lock.
func (c *cohort) acquireOnce(ctx context.Context, a *attempt) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, a.interrupted(ctx)
	}
	c.mu.Lock()
	if len(c.waiters) == 0 && c.shared != nil {
		if l := c.shared.admit(a.mode); l != nil {
			c.mu.Unlock()
			return l, nil
		}
	}
	removed := c.removeUnused()
	if ended := c.unwanted(); a.try && ended != nil {
		c.mu.Unlock()
		if err := c.await(ctx, a, ended); err != nil {
			return nil, err
		}
		return c.acquireOnce(ctx, a)
	}
	if a.try {
		taken := c.shared != nil || c.attempt != nil
		c.mu.Unlock()
		if err := c.await(ctx, a, removed); err != nil {
			return nil, err
		}
		return c.try(ctx, a, taken)
	}
	w := &waiter{mode: a.mode, granted: make(chan *Lock, 1), failed: make(chan error, 1)}
	c.waiters = append(c.waiters, w)
	if removed == nil { // otherwise the waiters contend when the entry is removed
		c.contend()
	}
	c.mu.Unlock()
	return c.wait(ctx, a, w)
}

// await waits until removed is closed. It returns an error if the call ends
// first. A nil channel says that there is nothing to wait for.
func (c *cohort) await(ctx context.Context, a *attempt, removed <-chan struct{}) error {
	if removed == nil {
		return nil
	}
	select {
	case <-removed:
		return nil
	case <-ctx.Done():
		return a.interrupted(ctx)
	case <-a.m.client.done:
		return lockError(a.m.name, ErrClosed)
	}
}

func (c *cohort) wait(ctx context.Context, a *attempt, w *waiter) (*Lock, error) {
	slow, stop := slowTimer(ctx, a)
	defer stop()
	for {
		select {
		case l := <-w.granted:
			return l, nil
		case err := <-w.failed:
			return nil, err
		case <-slow:
			c.logSlow(a)
		case <-ctx.Done():
			c.giveUp(a, w)
			return nil, a.interrupted(ctx)
		case <-a.m.client.done:
			c.giveUp(a, w)
			return nil, lockError(a.m.name, ErrClosed)
		}
	}
}

func slowTimer(ctx context.Context, a *attempt) (c <-chan time.Time, stop func() bool) {
	if !a.logsSlow(ctx) {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(slowAfter - a.elapsed())
	return t.C, t.Stop
}

// logSlow logs that a call waits for another call of the same client. While the
// cohort has no entry, logSlow logs nothing: the attempt of the cohort logs for
// which node it waits.
func (c *cohort) logSlow(a *attempt) {
	c.mu.Lock()
	shared := c.shared
	c.mu.Unlock()
	if shared == nil {
		return
	}
	node := shared.entry.Place().Name
	a.m.options.logger.Debug("dlock: still waiting", "lock", a.m.name, "behind", node, "holder", node,
		"waited", a.waited())
}

// giveUp is called when the context of a waiting call has ended. It removes the
// waiter from the cohort, and stores for the error of the call what the waiter
// has waited for. If the waiter was granted a Lock meanwhile, giveUp gives the
// Lock back. If it was the last waiter, giveUp waits for the removal of the cohort's
// node, for giveUpTimeout at most.
func (c *cohort) giveUp(a *attempt, w *waiter) {
	c.mu.Lock()
	i := slices.Index(c.waiters, w)
	if i < 0 {
		c.mu.Unlock()
		select {
		case l := <-w.granted:
			c.giveBack(l)
		case <-w.failed:
		}
		return
	}
	c.noteProgress(a, i)
	c.waiters = slices.Delete(c.waiters, i, i+1)
	c.fitAttempt()
	c.grant() // the waiter may have blocked the waiters behind it
	ended := c.unwanted()
	c.mu.Unlock()
	if ended == nil {
		return
	}
	t := time.NewTimer(giveUpTimeout)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	}
}

// noteProgress notes for a call what it has waited for, so that the error of
// the call can name it. The call's waiter is at index i. noteProgress is called
// with mu held.
func (c *cohort) noteProgress(a *attempt, i int) {
	var p state
	switch {
	case c.attempt != nil:
		p = c.attempt.progress.now()
		if p.view.Behind == "" && p.last == nil {
			p.last = errNoAnswer // the attempt's Create is not answered yet
		}
		p.view.Position += i
	case c.shared != nil:
		node := c.shared.entry.Place().Name
		p.view.First, p.view.Behind, p.view.Position = node, node, 2+i
	}
	a.progress.set(func(own *progress) { own.view, own.last = p.view, p.last })
}

// giveBack unlocks a Lock that the cohort has granted to a call and that the
// call does not return: because the call ends with an error, or because the
// Lock was lost meanwhile. giveBack returns after giveUpTimeout at the latest.
// If Unlock has not returned by then, it goes on in the background.
func (c *cohort) giveBack(l *Lock) {
	unlocked := make(chan struct{})
	unlock := func() {
		defer close(unlocked)
		_ = l.Unlock()
	}
	// If the client is being closed, no goroutine is started. Unlock then does
	// not wait for the store, so it runs here.
	if !c.m.client.spawn(unlock) {
		unlock()
		return
	}
	t := time.NewTimer(giveUpTimeout)
	defer t.Stop()
	select {
	case <-unlocked:
	case <-t.C:
	}
}

// accept checks once more whether the caller may have the Lock, just as
// attempt.once does before a grant. If the caller may not have the Lock, accept
// unlocks it and returns an error. If the Lock has been lost, accept returns
// neither a Lock nor an error, and the call waits for another Lock.
func (c *cohort) accept(ctx context.Context, a *attempt, l *Lock) (*Lock, error) {
	err := ctx.Err()
	switch {
	case a.m.client.closedOr(nil) != nil:
		err = lockError(a.m.name, ErrClosed)
	case l.hold.ended() != nil:
		c.giveBack(l)
		return nil, nil
	case err != nil:
		err = a.interrupted(ctx)
	}
	if err != nil {
		c.giveBack(l)
		return nil, err
	}
	a.announce(ctx, l)
	return l, nil
}

// contend begins an attempt if the cohort needs one. It is called with mu held.
func (c *cohort) contend() {
	if c.shared != nil || c.attempt != nil || len(c.waiters) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := newAttempt(c.m, c.waiters[0].mode)
	a.share = make(chan struct{})
	shared := &sharedAttempt{attempt: a, cancel: cancel, ended: make(chan struct{}), wanted: a.mode}
	c.attempt = shared
	c.addUser()
	spawned := c.m.client.spawn(func() {
		defer c.unuse()
		defer close(shared.ended)
		defer cancel()
		s, err := c.runShared(ctx, a)
		c.attemptEnded(ctx, s, err)
	})
	// If no goroutine was started, the client is being closed, which ends the
	// calls of the waiters.
	if !spawned {
		cancel()
		close(shared.ended)
		c.unuse()
	}
}

// contendAgain does what contend does. It locks mu itself.
func (c *cohort) contendAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contend()
}

// runShared runs the attempt a, and returns the entry that the attempt has got,
// as a sharedEntry of the cohort.
func (c *cohort) runShared(ctx context.Context, a *attempt) (*sharedEntry, error) {
	s := &sharedEntry{cohort: c}
	if err := a.run(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// attemptEnded is called with the result of the attempt. If the attempt has got
// an entry, that becomes the entry of the cohort and is granted to waiters. If
// the attempt has failed, the calls of all waiters fail with its error. If the
// entry was lost already, or the attempt was cancelled, another attempt begins
// for the waiters that are left.
func (c *cohort) attemptEnded(ctx context.Context, s *sharedEntry, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempt = nil
	switch {
	case err == nil && c.adopt(s):
		if c.passOn(s) {
			c.m.client.spawn(func() { _ = s.remove() })
		}
	case err == nil: // the entry is lost already
		c.contend()
	case ctx.Err() != nil: // the attempt was cancelled: see fitAttempt
		c.contend()
	default:
		for _, w := range c.waiters {
			w.failed <- err
		}
		c.waiters = nil
	}
}

// adopt makes an entry that was just granted the cohort's entry. It returns
// false if the entry has been lost already. It is called with mu held.
func (c *cohort) adopt(s *sharedEntry) bool {
	if s.entry.Loss() != nil { // if the entry is lost after this check, Lose drops it
		return false
	}
	c.addUser()
	c.shared = s
	s.watchOthers()
	return true
}

// fitAttempt is called, with mu held, when a waiter has given up. If the first
// waiter is a reader now, and the attempt is a writer's, the attempt goes on as a
// reader's, at its position in the queue. If no waiter is left, or the attempt is of
// no use to the first one, fitAttempt cancels the attempt.
func (c *cohort) fitAttempt() {
	a := c.attempt
	switch {
	case a == nil || a.cancelled:
	case len(c.waiters) > 0 && c.waiters[0].mode == a.wanted:
	case len(c.waiters) > 0 && a.wanted == Exclusive:
		a.wanted = Shared
		close(a.share)
	default:
		a.cancelled = true
		a.cancel()
	}
}

// unwanted returns a channel that closes when the attempt that was cancelled, as
// no waiter is left, has ended. It returns nil if there is none. It is called with
// mu held.
func (c *cohort) unwanted() <-chan struct{} {
	if a := c.attempt; a != nil && a.cancelled && len(c.waiters) == 0 {
		return a.ended
	}
	return nil
}

// try contends for a call of TryLock or TryRLock. If the cohort had an entry or
// an attempt when the call looked (taken is true), try returns ErrLocked.
// Otherwise try gets an entry for this call. The entry becomes the entry of the
// cohort, unless the cohort has got another entry or an attempt meanwhile.
func (c *cohort) try(ctx context.Context, a *attempt, taken bool) (*Lock, error) {
	if taken {
		return nil, lockError(a.m.name, ErrLocked)
	}
	s, err := c.runShared(ctx, a)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == nil && c.attempt == nil && c.adopt(s) {
		s.turns = 1
	}
	return s.lend(a.mode), nil
}
