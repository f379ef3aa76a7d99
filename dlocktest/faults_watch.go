package dlocktest

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// watches are those of a session; its mu guards them.
//
// The end of a watch may be delivered at any time, early or late, and in any order, unless it says
// Released: then every end must have been delivered before that could have been seen behind the
// faults before it (rule 13). So the ends that say Released wait for those that were noticed before,
// and whoever notices one looks at once which other watches have ended by then.
type watches struct {
	open  []*watching // whose end was not noticed yet
	ended []*watching // and not delivered yet, in the order in which they were noticed
	turns int         // so far: how often somebody has noticed something
}

// watching is a watch on its way to the caller.
type watching struct {
	ctx    context.Context    // of the caller
	cancel context.CancelFunc // frees the watch behind
	inner  <-chan driver.Cause
	outer  chan driver.Cause
	r      Request

	noticed chan struct{} // closes when the end has been noticed
	cause   driver.Cause  // valid after that
	since   int           // the turn in which it was noticed
	until   int           // the turn up to which everything was noticed that it has to wait for
	ready   bool          // the faults have let it pass
}

// Watch implements driver.Session.
func (s *faulty) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	return s.watch(ctx, Request{Method: MethodWatch, Queue: queue, Name: name},
		func(ctx context.Context) (<-chan driver.Cause, error) { return s.inner.Watch(ctx, queue, name) })
}

// WatchPlace implements driver.Releaser.
func (s giving) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	return s.watch(ctx, Request{Method: MethodWatch, Queue: queue, Name: p.Name, Place: p},
		func(ctx context.Context) (<-chan driver.Cause, error) {
			return s.inner.(driver.Releaser).WatchPlace(ctx, queue, p)
		})
}

func (s *faulty) watch(ctx context.Context, r Request, arm func(context.Context) (<-chan driver.Cause, error)) (<-chan driver.Cause, error) {
	if s.faults.decide == nil {
		return arm(ctx)
	}
	armed, cancel := context.WithCancel(ctx)
	r = s.numbered(r)
	in, fault, err := send(ctx, s, order[<-chan driver.Cause]{
		Request: r,
		do:      func(context.Context) (<-chan driver.Cause, error) { return arm(armed) },
	})
	if err != nil {
		cancel() // frees a watch whose reply was lost
		return nil, err
	}
	if r.Place.Token != 0 {
		if _, ended := peek(in); ended { // a place that is gone is known to be when WatchPlace returns
			cancel()
			return in, nil
		}
	}
	r.Stage = StageWatch
	w := &watching{
		ctx: ctx, cancel: cancel, r: r,
		inner: in, outer: make(chan driver.Cause, 1), noticed: make(chan struct{}),
	}
	s.mu.Lock()
	s.watches.open = append(s.watches.open, w)
	s.mu.Unlock()
	if !s.spawn(func() { s.follow(w, fault.CloseAfter) }) {
		cancel()
		close(w.outer)
	}
	return w.outer, nil
}

// follow waits for the end of a watch and carries it to the caller.
func (s *faulty) follow(w *watching, closeAfter time.Duration) {
	defer w.cancel()
	var early <-chan time.Time
	if closeAfter > 0 {
		t := time.NewTimer(closeAfter)
		defer t.Stop()
		early = t.C
	}
	select {
	case cause := <-w.inner:
		s.notice(w, cause)
	case <-early:
		s.notice(w, driver.Changed)
	case <-w.noticed:
	case <-w.ctx.Done():
		s.notice(w, driver.Changed)
	case <-s.life.Done():
		s.notice(w, driver.Changed)
	}
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	w.r.Cause = w.cause
	if ctx.Err() == nil && s.Err() == nil {
		_, _ = s.faults.meet(ctx, w.r)
	}
	s.pass(w)
}

// notice takes down that a watch has ended, unless that has been noticed. Somebody who looked
// may have seen only that its channel was closed, when Released had been received from it just
// before: then Released counts.
func (s *faulty) notice(w *watching, cause driver.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.since != 0 && cause != driver.Released {
		return
	}
	s.watches.turns++
	if cause == driver.Released {
		s.watches.look(w)
	}
	s.watches.end(w, cause)
}

// look notices everything else that has ended by now. Another Released may have brought more ends
// with it, some of watches that it has looked at already: then it looks again.
func (l *watches) look(except *watching) {
	var released []*watching
	for again := true; again; {
		again = false
		for _, w := range slices.Clone(l.open) {
			cause, ended := peek(w.inner)
			switch {
			case w == except || !ended || slices.Contains(released, w):
			case cause == driver.Released:
				released, again = append(released, w), true
			default:
				l.end(w, cause)
			}
		}
	}
	for _, w := range released {
		l.end(w, driver.Released)
	}
}

func peek(c <-chan driver.Cause) (cause driver.Cause, ended bool) {
	select {
	case cause = <-c:
		return cause, true
	default:
		return driver.Changed, false
	}
}

func (l *watches) end(w *watching, cause driver.Cause) {
	w.cause, w.until = cause, l.turns
	if w.since != 0 {
		return
	}
	w.since = l.turns
	l.open = slices.DeleteFunc(l.open, func(o *watching) bool { return o == w })
	l.ended = append(l.ended, w)
	close(w.noticed)
}

// pass delivers the end of a watch that the faults have let pass, and those that have waited for
// it.
func (s *faulty) pass(w *watching) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.ready = true
	l := &s.watches
	var waiting []*watching
	for _, w := range l.ended {
		if !w.ready || w.cause == driver.Released && l.waits(w) {
			waiting = append(waiting, w)
		} else {
			w.deliver(s)
		}
	}
	l.ended = waiting
}

// waits reports whether an end that says Released has to wait for another one: for every one that
// was noticed before it or in the same turn and has not been let pass.
func (l *watches) waits(w *watching) bool {
	return slices.ContainsFunc(l.ended, func(o *watching) bool { return o.since <= w.until && !o.ready })
}

// deliver ends the watch for its caller. Nothing is released once the session has ended or the
// watch was given up.
func (w *watching) deliver(s *faulty) {
	if w.cause == driver.Released && s.Err() == nil && w.ctx.Err() == nil {
		w.outer <- driver.Released
	}
	close(w.outer)
}
