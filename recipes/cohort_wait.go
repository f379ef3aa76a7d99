package recipes

import (
	"context"
	"slices"
	"time"
)

// waiter is a call that waits for an entry of its cohort.
type waiter struct {
	mode    Mode
	granted chan *Lock // of capacity 1, like failed
	failed  chan error
}

// acquire gets a lock for a call of a member.
func (c *cohort) acquire(ctx context.Context, a *attempt) (*Lock, error) {
	for {
		l, err := c.acquireOnce(ctx, a)
		if err != nil {
			return nil, err
		}
		if l, err = c.accept(ctx, a, l); l != nil || err != nil {
			return l, err
		} // else the lock was lost before the caller could have it
	}
}

// acquireOnce returns a Lock as soon as it is the caller's turn.
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
	if a.try {
		taken := c.shared != nil || c.attempt != nil
		c.mu.Unlock()
		return c.try(ctx, a, taken)
	}
	w := &waiter{mode: a.mode, granted: make(chan *Lock, 1), failed: make(chan error, 1)}
	c.waiters = append(c.waiters, w)
	c.contend()
	c.mu.Unlock()
	return c.wait(ctx, a, w)
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

// logSlow logs that a call waits for another one of its client. While the
// cohort has no entry, the attempt of the cohort logs for which node it waits.
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

// giveUp takes out a waiter whose call ends, and notes for the call what it has
// waited for. A Lock that the waiter was granted meanwhile is given back.
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
	c.cancelUnwantedAttempt()
	c.grant() // the waiter may have blocked others
	c.mu.Unlock()
}

// noteProgress notes what the call of the waiter at index i has waited for. It
// is called with mu held.
func (c *cohort) noteProgress(a *attempt, i int) {
	var p state
	switch {
	case c.attempt != nil:
		p = c.attempt.progress.now()
		if p.view.Behind == "" && p.last == nil {
			p.last = errNoAnswer // to the attempt's Create
		}
		p.view.Position += i
	case c.shared != nil:
		node := c.shared.entry.Place().Name
		p.view.First, p.view.Behind, p.view.Position = node, node, 2+i
	}
	a.progress.set(func(own *progress) { own.view, own.last = p.view, p.last })
}

// giveBack unlocks a Lock that its caller does not get. It does not wait longer
// for the store than a call does that has failed.
func (c *cohort) giveBack(l *Lock) {
	unlocked := make(chan struct{})
	unlock := func() {
		defer close(unlocked)
		_ = l.Unlock()
	}
	if !c.m.client.spawn(unlock) { // the client is being closed: Unlock does not wait
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

// accept looks once more whether the caller may have the Lock, as attempt.once
// does before a grant. It returns neither a Lock nor an error if the Lock has
// been lost.
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
	if !l.hold.traceEnd(ctx, a.m.options.trace) {
		c.giveBack(l)
		return nil, nil
	}
	returned := false
	defer func() {
		if !returned { // the hook has panicked
			_ = l.Unlock()
		}
	}()
	a.reportGranted(ctx, l.hold.entry)
	returned = true
	return l, nil
}
