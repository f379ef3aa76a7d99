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
	return c.lock, nil
}

// grant makes the hold and the Lock of the call, and grants the entry to the
// hold.
func (c *contention) grant(ctx context.Context, a *attempt, e *engine.Entry) error {
	h, l := newHold(a.m, e, ownEntry{e}, a.mode)
	h.traceEnd(ctx, a.m.options.trace)
	if err := e.Grant(h); err != nil {
		return err
	}
	a.reportGranted(ctx, e)
	c.lock = l
	return nil
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
