package recipes

import (
	"context"
	"slices"
	"time"
)

// local is somebody who waits within the process.
type local struct {
	mode   Mode
	won    chan *Lock // of capacity 1, like failed
	failed chan error
}

// lock is RWMutex.lock for those who share a place.
func (r *retainer) lock(ctx context.Context, a attempt) (*Lock, error) {
	a.began = time.Now()
	for {
		l, err := r.enter(ctx, &a)
		if err != nil {
			return nil, err
		}
		if l, err = r.accept(ctx, &a, l); l != nil || err != nil {
			return l, err
		} // else it was lost before anybody could use it
	}
}

// enter returns a Lock as soon as it is one's turn.
func (r *retainer) enter(ctx context.Context, a *attempt) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, a.interrupted(ctx)
	}
	r.mu.Lock()
	if len(r.line) == 0 {
		if l := r.admit(a.mode); l != nil {
			r.giveWay()
			r.mu.Unlock()
			return l, nil
		}
	}
	if a.try {
		taken := r.place != nil || r.pursuit != nil
		r.mu.Unlock()
		return r.try(ctx, a, taken)
	}
	w := &local{mode: a.mode, won: make(chan *Lock, 1), failed: make(chan error, 1)}
	r.line = append(r.line, w)
	r.pursue()
	r.mu.Unlock()
	return r.wait(ctx, a, w)
}

// try contends at the store, if nobody of this process is in the way. What it wins becomes the
// place, unless there is another one by then.
func (r *retainer) try(ctx context.Context, a *attempt, taken bool) (*Lock, error) {
	if taken {
		return nil, lockError(a.m.name, ErrLocked)
	}
	l, err := a.run(ctx)
	if err != nil {
		return nil, err
	}
	a.traced = true
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place == nil && r.pursuit == nil && l.hold.retain(r) && !r.settle(l.hold) {
		return l, nil // lost, as its user will find out
	}
	return l, nil
}

func (r *retainer) wait(ctx context.Context, a *attempt, w *local) (*Lock, error) {
	slow, stop := a.slow(ctx)
	defer stop()
	for {
		select {
		case l := <-w.won:
			return l, nil
		case err := <-w.failed:
			return nil, err
		case <-slow:
			r.tellOfWait(a)
		case <-ctx.Done():
			r.giveUp(a, w)
			return nil, a.interrupted(ctx)
		case <-a.m.client.done:
			r.giveUp(a, w)
			return nil, lockError(a.m.name, ErrClosed)
		}
	}
}

// tellOfWait logs that a call waits for another one of this client. A pursuit
// tells itself for whom it waits.
func (r *retainer) tellOfWait(a *attempt) {
	a.told = true
	r.mu.Lock()
	place := r.place
	r.mu.Unlock()
	if place == nil {
		return
	}
	node := place.placeNow().Name
	a.m.options.logger.Debug("dlock: still waiting", "lock", a.m.name, "behind", node, "holder", node,
		"waited", a.waited())
}

// giveUp takes somebody out of the line, and notes who was in his way.
func (r *retainer) giveUp(a *attempt, w *local) {
	r.mu.Lock()
	i := slices.Index(r.line, w)
	if i < 0 {
		r.mu.Unlock()
		select {
		case l := <-w.won:
			r.dismiss(l)
		case <-w.failed:
		}
		return
	}
	switch {
	case r.pursuit != nil:
		a.sight, a.last = r.pursuit.sight, r.pursuit.last
		a.position += i
		if a.behind == "" && a.last == nil {
			a.last = errNoAnswer // to its Create
		}
	case r.place != nil:
		name := r.place.placeNow().Name
		a.sight = sight{holder: name, behind: name, position: 2 + i}
	}
	r.line = slices.Delete(r.line, i, i+1)
	if p := r.pursuit; p != nil && (len(r.line) == 0 || r.line[0].mode != p.mode) {
		p.cancel()
	}
	r.grant() // he may have been in the way of others
	r.mu.Unlock()
}

// dismiss unlocks a Lock that its caller does not get. It waits for the store no longer
// than a call does that has failed.
func (r *retainer) dismiss(l *Lock) {
	unlocked := make(chan struct{})
	unlock := func() {
		defer close(unlocked)
		_ = l.Unlock()
	}
	if !r.m.client.spawn(unlock) { // the client is being closed: Unlock does not wait
		unlock()
		return
	}
	t := time.NewTimer(abandonTimeout)
	defer t.Stop()
	select {
	case <-unlocked:
	case <-t.C:
	}
}

// accept is the last look before a Lock is returned, as in attempt.grant. It returns nothing if
// the Lock has been lost.
func (r *retainer) accept(ctx context.Context, a *attempt, l *Lock) (*Lock, error) {
	err := ctx.Err()
	switch {
	case a.m.client.closedOr(nil) != nil:
		err = lockError(a.m.name, ErrClosed)
	case l.hold.over():
		r.dismiss(l)
		return nil, nil
	case err != nil:
		err = a.interrupted(ctx)
	}
	if err != nil {
		r.dismiss(l)
		return nil, err
	}
	if a.traced {
		return l, nil
	}
	if !l.accepted(ctx, a.m.options.trace) {
		r.dismiss(l)
		return nil, nil
	}
	if hook := a.m.options.trace.Granted; hook != nil {
		a.acceptTraced(ctx, l, hook)
	}
	return l, nil
}

// accepted has the hooks see the turn of a Lock. It reports false if the Lock is lost.
func (l *Lock) accepted(ctx context.Context, trace *Trace) bool {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	if l.hold.lost != nil {
		return false
	}
	l.turn.granted(ctx, trace)
	return true
}

func (a *attempt) acceptTraced(ctx context.Context, l *Lock, hook func(context.Context, GrantedInfo)) {
	returned := false
	defer func() {
		if !returned { // the hook has panicked
			_ = l.Unlock()
		}
	}()
	hook(ctx, GrantedInfo{Lock: a.m.name, Node: l.Node(), Mode: a.mode, Token: l.Token(), Waited: time.Since(a.began)})
	returned = true
}
