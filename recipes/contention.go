package recipes

import (
	"context"

	"github.com/dlock-go/dlock/recipes/internal/engine"
)

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

// reportGranted calls the hook Granted of the RWMutex that the call was made
// on. The RWMutex of the hold may be another one of the same name, if the hold
// belongs to a cohort.
func (a *attempt) reportGranted(ctx context.Context, e *engine.Entry) {
	if hook := a.m.options.trace.Granted; hook != nil {
		p := e.Place()
		hook(ctx, GrantedInfo{Lock: a.m.name, Node: p.Name, Mode: a.mode, Token: p.Token, Waited: a.elapsed()})
	}
}

// ownEntry lends an entry to its only hold.
type ownEntry struct{ entry *engine.Entry }

func (ownEntry) becameShared() {}

func (o ownEntry) giveBack(*hold) error { return o.entry.Remove(unlockTimeout) }
