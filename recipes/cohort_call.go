package recipes

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// waiter is a call that waits for an entry of its cohort.
type waiter struct {
	want    *want
	granted chan *Lock // receives the Lock if the call gets it; capacity 1
	failed  chan error // receives the error if the call fails; capacity 1
}

// cohortCall contends for an entry on behalf of the waiters of a cohort. It
// goes on as long as there are waiters. So a waiter that gives up does not cost
// the others their position in the queue.
type cohortCall struct {
	*call
	cancel context.CancelFunc
	ended  chan struct{} // closed when the attempt has ended

	// Guarded by cohort.mu:
	wanted    *want // what the call contends for, or was told to contend for
	cancelled bool
}

// enter gets a lock for a call of a goroutine of the cohort.
func (c *cohort) enter(ctx context.Context, call *call) (*Lock, error) {
	for {
		l, err := c.enterOnce(ctx, call)
		if err != nil {
			return nil, err
		}
		if l, err = c.confirm(ctx, call, l); l != nil || err != nil {
			return l, err
		} // if both are nil, the lock was lost, and the call waits for another Lock
	}
}

// enterOnce waits until the cohort grants the lock to this call, and returns
// the Lock.
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
	w := &waiter{want: call.want, granted: make(chan *Lock, 1), failed: make(chan error, 1)}
	c.waiters = append(c.waiters, w)
	if removed == nil { // otherwise the waiters contend when the entry is removed
		c.contendForAll()
	}
	c.mu.Unlock()
	return c.awaitLock(ctx, call, w)
}

// awaitRemoval waits until removed is closed. It returns an error if the call ends
// first. A nil channel says that there is nothing to wait for.
func (c *cohort) awaitRemoval(ctx context.Context, call *call, removed <-chan struct{}) error {
	if removed == nil {
		return nil
	}
	select {
	case <-removed:
		return nil
	case <-ctx.Done():
		return call.interrupted(ctx)
	case <-call.client.done:
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
		case <-call.client.done:
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

// logSlow logs that a call waits for another call of the same client. While the
// cohort has no entry, logSlow logs nothing: the attempt of the cohort logs for
// which node it waits.
func (c *cohort) logSlow(call *call) {
	c.mu.Lock()
	shared := c.shared
	c.mu.Unlock()
	if shared == nil {
		return
	}
	node := shared.entry.Place().Name
	call.options.logger.Debug("dlock: still waiting", "lock", call.name, "behind", node, "holder", node,
		"waited", call.waited())
}

// giveUp is called when the context of a waiting call has ended. It removes the
// waiter from the cohort, and stores for the error of the call what the waiter
// has waited for. If the waiter was granted a Lock meanwhile, giveUp gives the
// Lock back. If it was the last waiter, giveUp waits for the removal of the cohort's
// node, for giveUpTimeout at most.
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
	c.admitWaiters() // the waiter may have blocked the waiters behind it
	ended := c.unwanted()
	c.mu.Unlock()
	if ended != nil {
		awaitBriefly(ended)
	}
}

// noteProgress notes for a call what it has waited for, so that the error of
// the call can name it. The call's waiter is at index i. noteProgress is called
// with mu held.
func (c *cohort) noteProgress(call *call, i int) {
	var p snapshot
	switch {
	case c.contending != nil:
		p = c.contending.progress.now()
		if p.view.Behind == "" && p.last == nil {
			p.last = errNoAnswer // the attempt's Create is not answered yet
		}
		p.view.Position += i
	case c.shared != nil:
		node := c.shared.entry.Place().Name
		p.view.First, p.view.Behind, p.view.Position = node, node, 2+i
	}
	call.progress.set(func(own *progress) { own.view, own.last = p.view, p.last })
}

// discard unlocks a Lock that the cohort has granted to a call and that the
// call does not return: because the call ends with an error, or because the
// Lock was lost meanwhile. giveBack returns after giveUpTimeout at the latest.
// If Unlock has not returned by then, it goes on in the background.
func (c *cohort) discard(l *Lock) {
	unlocked := make(chan struct{})
	unlock := func() {
		defer close(unlocked)
		_ = l.Unlock()
	}
	// If the client is being closed, no goroutine is started. Unlock then does
	// not wait for the store, so it runs here.
	if !c.queue.client.spawn(unlock) {
		unlock()
		return
	}
	awaitBriefly(unlocked)
}

// confirm checks once more whether the caller may have the Lock, just as
// call.contendOnce does before a grant. If the caller may not have the Lock, confirm
// unlocks it and returns an error. If the Lock has been lost, accept returns
// neither a Lock nor an error, and the call waits for another Lock.
func (c *cohort) confirm(ctx context.Context, call *call, l *Lock) (*Lock, error) {
	err := ctx.Err()
	switch {
	case call.client.closedOr(nil) != nil:
		err = lockError(call.name, ErrClosed)
	case l.hold.ended() != nil:
		c.discard(l)
		return nil, nil
	case err != nil:
		err = call.interrupted(ctx)
	}
	if err != nil {
		c.discard(l)
		return nil, err
	}
	call.reportGranted(ctx, l)
	return l, nil
}

// contendForAll begins an attempt if the cohort needs one. It is called with mu held.
func (c *cohort) contendForAll() {
	if c.shared != nil || c.contending != nil || len(c.waiters) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	call := newCall(c.queue, c.waiters[0].want)
	call.share = make(chan struct{})
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
	// If no goroutine was started, the client is being closed, which ends the
	// calls of the waiters.
	if !spawned {
		cancel()
		close(shared.ended)
		c.unuse()
	}
}

// contendAgain does what contendForAll does. It locks mu itself.
func (c *cohort) contendAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contendForAll()
}

// contendShared runs the call, and returns the entry that the attempt has got,
// as a sharedEntry of the cohort.
func (c *cohort) contendShared(ctx context.Context, call *call) (*sharedEntry, error) {
	s := &sharedEntry{cohort: c}
	if err := call.contend(ctx, func(e *engine.Entry) error { return s.ownEntry(call.want, e) }); err != nil {
		return nil, err
	}
	return s, nil
}

// callEnded is called with the result of the attempt. If the attempt has got
// an entry, that becomes the entry of the cohort and is granted to waiters. If
// the attempt has failed, the calls of all waiters fail with its error. If the
// entry was lost already, or the attempt was cancelled, another attempt begins
// for the waiters that are left.
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
	case ctx.Err() != nil: // the attempt was cancelled: see fitCall
		c.contendForAll()
	default:
		for _, w := range c.waiters {
			w.failed <- err
		}
		c.waiters = nil
	}
}

// install makes an entry that was just granted the cohort's entry. It returns
// false if the entry has been lost already. It is called with mu held.
func (c *cohort) install(s *sharedEntry) bool {
	if s.entry.Loss() != nil { // if the entry is lost after this check, Lose drops it
		return false
	}
	c.addUser()
	c.shared = s
	s.watchOthers()
	return true
}

// fitCall is called, with mu held, when a waiter has given up. If the first
// waiter is a reader now, and the attempt is a writer's, the attempt goes on as a
// reader's, at its position in the queue. If no waiter is left, or the attempt is of
// no use to the first one, fitCall cancels the attempt.
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

// unwanted returns a channel that closes when the attempt that was cancelled, as
// no waiter is left, has ended. It returns nil if there is none. It is called with
// mu held.
func (c *cohort) unwanted() <-chan struct{} {
	if call := c.contending; call != nil && call.cancelled && len(c.waiters) == 0 {
		return call.ended
	}
	return nil
}

// tryEnter contends for a call of TryLock or TryRLock. If the cohort had an entry or
// an attempt when the call looked (taken is true), try returns ErrLocked.
// Otherwise try gets an entry for this call. The entry becomes the entry of the
// cohort, unless the cohort has got another entry or an attempt meanwhile.
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
