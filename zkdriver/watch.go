package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
)

// watches holds the watches of a session, one for each path, shared by all who wait for it.
// ZooKeeper (as go-zookeeper speaks to it) cannot take a watch back: one that nobody waits for
// any more stays until the node goes, and serves who comes next.
//
// Watches are ended by go-zookeeper's event callback, so that none takes a goroutine.
type watches struct {
	mu     sync.Mutex
	closed bool
	left   bool // there were some when it was closed: go-zookeeper has them still
	paths  map[string]*watch
}

// watch is one path. It leaves the map when it ends.
type watch struct {
	armed   chan struct{} // closed when the server has answered
	err     error         // set before that
	over    bool          // the node is gone, or something changed
	waiters map[*waiter]struct{}
}

// waiter is one who waits. Its channel is closed by who takes it out of the watch.
type waiter struct {
	ended chan driver.Cause
	stop  func() bool // of the ctx that frees it
}

// Watch implements driver.Session. A node is watched through its children, of which it has
// none: no data moves, its end is reported and nothing else, and a watch for a missing node is
// not set.
//
// A watch of a queue makes the queue where it is missing.
func (s *session) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return nil, err
	}
	path := s.settings.queuePath(queue)
	arm := s.watchChildren
	if name == "" {
		arm = func(string) error { return s.watchQueue(queue) }
	} else {
		if err := checkName(name); err != nil {
			return nil, err
		}
		path += "/" + name
	}
	if err := s.lease.Err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("zkdriver: %w", err)
	}
	w, who, first := s.watches.join(path)
	if first {
		s.arm(ctx, path, w, arm)
	}
	return s.watches.wait(ctx, s, path, w, who)
}

// arm asks the server. The answer is for all who wait, so it does not depend on the ctx of one
// of them.
func (s *session) arm(ctx context.Context, path string, w *watch, arm func(string) error) {
	job := func() {
		asked := s.owned.now()
		err := arm(path)
		if errors.Is(err, zk.ErrNoNode) {
			s.watches.fire(path, driver.Changed) // at once
			if queue, name, ok := s.settings.splitPath(path); ok {
				s.owned.lostNode(queue, name, asked)
			}
			err = nil
		}
		s.watches.answered(path, w, s.explain(err, "watch", path, "READ on it"))
	}
	if ctx.Done() == nil {
		job()
	} else {
		s.work(job)
	}
}

func (s *session) watchQueue(queue string) error {
	path := s.settings.queuePath(queue)
	for range 3 {
		err := s.watchChildren(path)
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := s.makeQueue(queue); err != nil {
			return err
		}
	}
	return s.vanished(queue)
}

// any tells whether go-zookeeper may have watches, also such as nobody waits for any more.
func (ws *watches) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.left || len(ws.paths) > 0
}

// join finds the watch of a path or makes one, which the caller has to arm then.
func (ws *watches) join(path string) (w *watch, who *waiter, first bool) {
	who = &waiter{ended: make(chan driver.Cause, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.paths == nil {
		ws.paths = make(map[string]*watch)
	}
	w = ws.paths[path]
	if w == nil {
		w = &watch{armed: make(chan struct{}), waiters: make(map[*waiter]struct{})}
		w.over = ws.closed
		if !ws.closed {
			ws.paths[path] = w
		}
		first = true
	}
	if w.over {
		close(who.ended)
	} else {
		w.waiters[who] = struct{}{}
	}
	return w, who, first
}

// wait returns once the watch is armed, and frees the waiter when ctx ends.
func (ws *watches) wait(ctx context.Context, s *session, path string, w *watch, who *waiter) (<-chan driver.Cause, error) {
	select {
	case <-w.armed:
	case <-ctx.Done():
		ws.leave(w, who)
		return nil, fmt.Errorf("zkdriver: watch %s: %w", printable(path), ctx.Err())
	case <-s.lease.Done():
		ws.leave(w, who)
		return nil, s.lease.Err()
	}
	if w.err != nil {
		ws.leave(w, who)
		return nil, w.err
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { ws.leave(w, who) })
		ws.keepStop(w, who, stop)
	}
	return who.ended, nil
}

// keepStop lets the end of the watch free what ctx holds.
func (ws *watches) keepStop(w *watch, who *waiter, stop func() bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, waiting := w.waiters[who]; waiting {
		who.stop = stop
	} else {
		stop()
	}
}

// leave forgets one who waits. Its channel never closes.
func (ws *watches) leave(w *watch, who *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(w.waiters, who)
}

// answered passes on what the server said. A watch that it did not set is forgotten.
func (ws *watches) answered(path string, w *watch, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if err != nil {
		w.err = err
		if ws.paths[path] == w {
			delete(ws.paths, path)
		}
	}
	close(w.armed)
}

// fire ends the watch of a path.
func (ws *watches) fire(path string, why driver.Cause) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.paths[path]; w != nil {
		delete(ws.paths, path)
		w.end(why)
	}
}

// close ends all watches, for good.
func (ws *watches) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed, ws.left = true, ws.left || len(ws.paths) > 0
	for _, w := range ws.paths {
		w.end(driver.Changed)
	}
	clear(ws.paths)
}

// end needs watches.mu.
func (w *watch) end(why driver.Cause) {
	w.over = true
	for who := range w.waiters {
		if why != driver.Changed {
			who.ended <- why
		}
		close(who.ended)
		if who.stop != nil {
			who.stop()
		}
	}
	clear(w.waiters)
}
