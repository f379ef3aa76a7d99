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

// cohortCall contends on behalf of the waiters of a cohort, for as long as
// there are any, so that a waiter that gives up does not cost the others their
// position in the queue.
type cohortCall struct {
	*call
	cancel context.CancelFunc
	ended  chan struct{} // closed when the call has ended

	// Guarded by cohort.mu:
	wanted    *want // what the call contends for, or was told to contend for
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

// enterOnce waits until the cohort admits the call.
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

// awaitRemoval waits until removed closes, or the call ends. It returns at once
// if removed is nil.
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

// logSlow logs that a call waits for another one of the same client. While the
// cohort has no entry, it logs nothing: cohortCall does.
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

// giveUp removes a waiter whose context has ended, and discards a Lock that it
// was granted meanwhile. After the last waiter, it gives the cohort
// giveUpTimeout to remove its node.
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

// noteProgress notes for the error of a call what it has waited for. i is the
// index of its waiter. It is called with mu held.
func (c *cohort) noteProgress(call *call, i int) {
	var p snapshot
	switch {
	case c.contending != nil:
		p = c.contending.progress.now()
		if p.view.Behind == "" && p.last == nil {
			p.last = errNoAnswer // its Create is not answered yet
		}
		p.view.Position += i
	case c.shared != nil:
		node := c.shared.entry.Place().Name
		p.view.First, p.view.Behind, p.view.Position = node, node, 2+i
	}
	call.progress.set(func(own *progress) { own.view, own.last = p.view, p.last })
}

// discard unlocks a Lock that no call returns. Unlock goes on in the background
// after giveUpTimeout.
func (c *cohort) discard(l *Lock) {
	unlocked := make(chan struct{})
	unlock := func() {
		defer close(unlocked)
		_ = l.Unlock()
	}
	// While the client is being closed, Unlock does not wait for the store.
	if !c.queue.client.spawn(unlock) {
		unlock()
		return
	}
	awaitBriefly(unlocked)
}

// confirm checks once more whether the caller may have the Lock, as contendOnce
// does before a grant. If the Lock was lost meanwhile, confirm returns neither
// a Lock nor an error, and the call waits for another one.
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

// contendForAll makes a cohortCall if the cohort needs one. It is called with
// mu held.
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
	// Otherwise the client is being closed, which ends the calls of the waiters.
	if !spawned {
		cancel()
		close(shared.ended)
		c.unuse()
	}
}

// contendAgain is contendForAll without mu held.
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

// callEnded takes the result of the cohortCall. Its entry is granted to
// waiters, and its error fails all of them. If the entry was lost already or
// the call was cancelled, the waiters that are left contend again.
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

// install makes s the entry of the cohort, unless s was lost already. It is
// called with mu held.
func (c *cohort) install(s *sharedEntry) bool {
	if s.entry.Loss() != nil { // after this check, tellHolds drops the entry
		return false
	}
	c.addUser()
	c.shared = s
	s.watchOthers()
	return true
}

// fitCall is called, with mu held, when a waiter has given up. A call for a
// writer goes on for a reader, at its position, if a reader is first now. A
// call that is of no use to the first waiter is cancelled.
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

// unwanted returns a channel that closes when the call that was cancelled for
// lack of waiters has ended, or nil. It is called with mu held.
func (c *cohort) unwanted() <-chan struct{} {
	if call := c.contending; call != nil && call.cancelled && len(c.waiters) == 0 {
		return call.ended
	}
	return nil
}

// tryEnter contends for a call of TryLock or TryRLock, unless the cohort has an
// entry or contends already (taken). The entry stays with the cohort if the
// cohort has got none meanwhile.
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
