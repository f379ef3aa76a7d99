package dlocktest

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// full is a session with every optional interface but Releaser.
type full interface {
	driver.Session
	driver.Replacer
	driver.Reader
	driver.Walker
}

// releases remembers, for one store, which nodes were given back.
type releases struct {
	mu    sync.Mutex
	nodes map[released]bool
}

type released struct {
	queue string
	seq   int64
	epoch int64
}

// releasing gives a session a sound Release, whatever it had before. Watches know a node
// by its name, so it remembers which nodes of a queue are alive when they are armed.
type releasing struct {
	full
	given *releases

	mu      sync.Mutex
	watches map[*forwarded]bool
}

func newReleasing(s driver.Session, given *releases) *releasing {
	return &releasing{full: s.(full), given: given, watches: make(map[*forwarded]bool)}
}

func (s *releasing) Release(ctx context.Context, queue string, p driver.Place) error {
	key := released{queue, p.Seq, p.Epoch}
	s.given.set(key, true)
	err := s.Delete(ctx, queue, p)
	if err != nil {
		s.given.set(key, false) // in doubt: a watch then says Changed, which is always allowed
	}
	return err
}

func (r *releases) set(key released, given bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[key] = given
}

func (r *releases) has(key released) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[key]
}

// forwarded is a watch on its way to the caller.
type forwarded struct {
	inner  <-chan driver.Cause
	outer  chan driver.Cause
	key    released
	ctx    context.Context
	closed bool
}

// WatchPlace lists, because the watches below know names only.
func (s *releasing) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	w, err := s.Watch(ctx, queue, p.Name)
	if err != nil {
		return nil, err
	}
	nodes, err := s.List(ctx, queue)
	if err == nil && !has(nodes, p.Node) {
		closed := make(chan driver.Cause)
		close(closed)
		return closed, nil
	}
	return w, err
}

func (s *releasing) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	inner, err := s.full.Watch(ctx, queue, name)
	if err != nil || name == "" {
		return inner, err
	}
	nodes, err := s.List(ctx, queue)
	if err != nil {
		return nil, err
	}
	f := &forwarded{inner: inner, outer: make(chan driver.Cause, 1), ctx: ctx}
	for _, n := range nodes {
		if n.Name == name {
			f.key = released{queue, n.Seq, n.Epoch}
		}
	}
	s.mu.Lock()
	s.watches[f] = true
	s.mu.Unlock()
	go s.forward(f)
	return f.outer, nil
}

// forward passes the end of a watch on, and of every other watch of the session that has ended by now.
// Those that say Released come last.
func (s *releasing) forward(f *forwarded) {
	select {
	case <-f.inner:
	case <-f.ctx.Done():
	case <-s.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := []*forwarded{f}
	for other := range s.watches {
		if other != f && readable(other.inner) {
			ended = append(ended, other)
		}
	}
	for _, w := range ended {
		if !s.given.has(w.key) {
			s.end(w)
		}
	}
	for _, w := range ended {
		s.end(w)
	}
}

func (s *releasing) end(f *forwarded) {
	if f.closed {
		return
	}
	f.closed = true
	delete(s.watches, f)
	if s.Err() == nil && s.given.has(f.key) {
		f.outer <- driver.Released
	}
	close(f.outer)
}
