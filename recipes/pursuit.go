package recipes

import "context"

// pursuit contends for a place at the store on behalf of the line. It goes on as long as somebody
// is in line, whoever that is: so one who gives up does not cost the others their place in the
// queue.
type pursuit struct {
	mode   Mode
	cancel context.CancelFunc

	// What attempt has found out, guarded by retainer.mu.
	sight
	last error
}

// pursue begins a pursuit if there is need for one. It is called with r.mu held.
func (r *retainer) pursue() {
	if r.place != nil || r.pursuit != nil || len(r.line) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &pursuit{mode: r.line[0].mode, cancel: cancel}
	r.pursuit = p
	r.ref(1)
	spawned := r.m.client.spawn(func() {
		defer r.ref(-1)
		defer cancel()
		r.contend(ctx, p)
	})
	if !spawned { // the client is being closed, as all who wait will find out
		cancel()
		r.ref(-1)
	}
}

func (r *retainer) contend(ctx context.Context, p *pursuit) {
	a := attempt{m: r.m, mode: p.mode, retainer: r, pursuit: p}
	l, err := a.run(ctx)
	r.pursued(ctx, l, err)
}

// pursued ends a pursuit with its result.
func (r *retainer) pursued(ctx context.Context, l *Lock, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pursuit = nil
	switch {
	case err == nil && r.settle(l.hold):
		r.welcome(l)
	case err == nil:
		// The lock is lost already, and no caller has it. The lost session ends in
		// the store once all its locks are unlocked.
		r.m.client.spawn(func() { _ = l.Unlock() })
		r.pursue()
	case ctx.Err() != nil:
		r.pursue() // the waiters that wanted it have gone, but others wait
	default:
		for _, w := range r.line {
			w.failed <- err
		}
		r.line = nil
	}
}

// welcome gives what a pursuit has won to who is first in line. It is called with r.mu held.
func (r *retainer) welcome(l *Lock) {
	if len(r.line) == 0 || r.line[0].mode != l.mode {
		r.m.client.spawn(func() { _ = l.Unlock() }) // of the one who has gone
		return
	}
	r.next(l)
	r.grant()
}

// note passes on what an attempt has found out.
func (a *attempt) note() {
	if a.pursuit == nil {
		return
	}
	a.retainer.mu.Lock()
	defer a.retainer.mu.Unlock()
	a.pursuit.sight, a.pursuit.last = a.sight, a.last
}
