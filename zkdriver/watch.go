package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	mu         sync.Mutex
	closed     bool
	left       bool // there were some when it was closed: go-zookeeper has them still
	paths      map[string]*watch
	connection uint64         // how often the connection broke
	stale      map[string]int // watches of an earlier connection, by the queue's path
}

// watch is one path. It leaves the map when it ends.
type watch struct {
	connection uint64        // that at which it was asked for
	armed      chan struct{} // closed when the server has answered
	err        error         // set before that
	seen       sight         // likewise
	over       bool          // the node is gone, or something changed
	waiters    map[*waiter]struct{}

	// A write was reported before the answer was looked at: what it means is seen then.
	written, trusted bool
}

// sight is what the answer to a watch has shown of the node.
type sight struct {
	mine     bool // the node belongs to this session
	token    int64
	believed bool // a write to it is a Release, see believes
}

// waiter is one who waits. Its channel is closed by who takes it out of the watch.
type waiter struct {
	ended chan driver.Cause
	stop  func() bool // of the ctx that frees it
}

// Watch implements driver.Session. A node is watched through its data: a write to it is the
// first part of its Release, if it is guarded. A watch for a missing node is not set.
//
// A watch of a queue, through its children, makes the queue where it is missing.
func (s *session) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return nil, err
	}
	path := s.settings.queuePath(queue)
	if name == "" {
		_, c, err := s.watchPath(ctx, path, func(string) (sight, error) { return sight{}, s.watchQueue(queue) })
		return c, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	s.crowds.hindered(queue)
	_, c, err := s.watchPath(ctx, path+"/"+name, func(path string) (sight, error) { return s.watchNode(queue, path) })
	return c, err
}

// WatchPlace implements driver.Releaser. The answer to the watch shows which
// node it is: a node is this one only if both its token and its session are.
func (s *session) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	if err := s.checkPlace(queue, p); err != nil {
		return nil, err
	}
	w, c, err := s.watchPath(ctx, s.settings.queuePath(queue)+"/"+p.Name,
		func(path string) (sight, error) { return s.watchNode(queue, path) })
	if err == nil && (w.seen.token != p.Token || !w.seen.mine) {
		return gone, nil
	}
	return c, err
}

// gone is the watch of a node that is not there.
var gone = func() <-chan driver.Cause { c := make(chan driver.Cause); close(c); return c }()

func (s *session) watchPath(ctx context.Context, path string, arm func(path string) (sight, error)) (*watch, <-chan driver.Cause, error) {
	if err := s.lease.Err(); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("zkdriver: %w", err)
	}
	w, who, first := s.watches.join(path)
	if first {
		s.arm(ctx, path, w, arm)
	}
	c, err := s.watches.wait(ctx, s, path, w, who)
	return w, c, err
}

// arm asks the server. The answer is for all who wait, so it does not depend on the ctx of one
// of them.
func (s *session) arm(ctx context.Context, path string, w *watch, arm func(path string) (sight, error)) {
	job := func() {
		asked := s.owned.now()
		seen, err := arm(path)
		if errors.Is(err, zk.ErrNoNode) {
			s.watches.fire(path, driver.Changed) // at once
			if queue, name, ok := s.settings.splitPath(path); ok {
				s.owned.lostNode(queue, name, asked)
			}
			err = nil
		}
		s.watches.answered(path, w, seen, s.explain(err, "watch", path, "READ on it"))
	}
	if ctx.Done() == nil {
		job()
	} else {
		s.work(job)
	}
}

func (s *session) watchNode(queue, path string) (sight, error) {
	stored, stat, err := s.watchData(path)
	if err != nil {
		return sight{}, err
	}
	f := found{stat: stat, mine: stat.EphemeralOwner == s.link.sessionID()}
	f.data, f.envelope, _ = open(stored)
	return sight{mine: f.mine, token: f.token(), believed: s.believes(queue, &f)}, nil
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
		w = &watch{connection: ws.connection, armed: make(chan struct{}), waiters: make(map[*waiter]struct{})}
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
func (ws *watches) answered(path string, w *watch, seen sight, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.seen = seen
	if err != nil {
		w.err = err
		if ws.paths[path] == w {
			ws.drop(path, w)
		}
	}
	close(w.armed)
	if w.written && !w.over {
		w.end(w.cause())
	}
}

// fire ends the watch of a path.
func (ws *watches) fire(path string, why driver.Cause) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.paths[path]; w != nil {
		ws.drop(path, w)
		w.end(why)
	}
}

// written ends the watch of a node that was written to. If the node is
// believed, its session has written to it, to release it.
//
// After a reconnect that is not believed. The server reports a node which has
// changed since as written, also if it is another one of the same name. And it
// may take several requests to set all watches again, so that the end of a node
// is reported later than that of another one whose watch is new: for as long as
// there is an older watch in the queue.
func (ws *watches) written(path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.paths[path]
	if w == nil {
		return
	}
	w.written, w.trusted = true, ws.stale[parent(path)] == 0
	ws.drop(path, w)
	select {
	case <-w.armed:
		w.end(w.cause())
	default: // answered does it
	}
}

// cause returns what a write means. It needs watches.mu.
func (w *watch) cause() driver.Cause {
	if w.seen.believed && w.trusted {
		return driver.Released
	}
	return driver.Changed
}

// disconnected is called when a connection has broken, before anything comes from the next one.
func (ws *watches) disconnected() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.connection++
	ws.stale = make(map[string]int)
	for path := range ws.paths {
		ws.stale[parent(path)]++
	}
}

// drop takes a watch out of the map. It needs ws.mu.
func (ws *watches) drop(path string, w *watch) {
	delete(ws.paths, path)
	if w.connection == ws.connection {
		return
	}
	if ws.stale[parent(path)]--; ws.stale[parent(path)] <= 0 {
		delete(ws.stale, parent(path))
	}
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }

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
