//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// poll is how often a session looks whether its watches have anything to report.
const poll = 5 * time.Millisecond

type watch struct {
	queue, name string
	armed       int64 // the version of the state at that time
	ended       chan driver.Cause
	stop        func() bool // lets go of the ctx
}

// over judges by what is and not by what happened, so that nothing slips through between two
// looks. A look may be at a state from before the watch was armed, which says nothing.
func (w *watch) over(st *state) bool {
	switch {
	case st.Version < w.armed:
		return false
	case w.name == "":
		return st.Version > w.armed
	}
	return !slices.ContainsFunc(st.Queues[w.queue], func(n node) bool { return n.Name == w.name })
}

func (s *session) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	w := &watch{queue: queue, name: name, ended: make(chan driver.Cause)}
	gone := false
	err := s.see(ctx, "watch", queue, func(st *state) error {
		w.armed = st.Version
		gone = w.over(st)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone || s.watches == nil {
		close(w.ended)
		return w.ended, nil
	}
	s.watches[w] = true
	w.stop = context.AfterFunc(ctx, func() { s.forget(w) })
	return w.ended, nil
}

func (s *session) forget(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

// look ends the watches whose time has come.
func (s *session) look() {
	st, err := s.store.read()
	if err != nil {
		return // the heartbeats decide what that means
	}
	if _, alive := st.Sessions[s.id]; !alive {
		s.lease.End(errExpired)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		if w.over(st) {
			s.finish(w)
		}
	}
}

func (s *session) endWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		s.finish(w)
	}
	s.watches = nil
}

// finish is called with mu held.
func (s *session) finish(w *watch) {
	delete(s.watches, w)
	close(w.ended)
	w.stop()
}
