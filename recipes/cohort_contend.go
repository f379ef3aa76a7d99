package recipes

import "context"

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
