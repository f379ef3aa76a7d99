package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Watch implements driver.Session. It watches each node's data, because a
// release begins with a write to the node. If a node is missing, the server
// sets no watch, so the driver ends the driver.Watch itself.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	if err := s.settings.checkPlace(queue, p); err != nil {
		return driver.Watch{}, err
	}
	queue = s.queueOf(queue, p)
	path := s.settings.queuePath(queue)
	p.Name, ahead = s.settings.layout.stored(p.Name), s.settings.layout.storedNodes(ahead)
	paths := []string{path + "/" + p.Name}
	for _, n := range ahead {
		if err := checkName(n.Name); err != nil {
			return driver.Watch{}, err
		}
		paths = append(paths, path+"/"+n.Name)
	}
	if len(ahead) > 0 {
		s.queues.noteShared(queue, false)
	}
	sub := &subscriber{c: make(chan driver.Cause, 1)}
	err := s.subscribeAll(ctx, sub, paths, true, func(path string) (watchedNode, error) { return s.watchNode(queue, path) })
	if err != nil {
		return driver.Watch{}, err
	}
	s.watches.start(sub, p.Token)
	return s.watchOf(sub), nil
}

// WatchQueue implements driver.Session. It creates the queue's node if it is
// missing, and watches its children.
func (s *session) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return driver.Watch{}, err
	}
	sub := &subscriber{c: make(chan driver.Cause, 1)}
	queue, _ = s.queues.current(queue)
	path := s.settings.queuePath(queue)
	err := s.subscribeAll(ctx, sub, []string{path}, false, func(string) (watchedNode, error) { return watchedNode{}, s.watchQueue(queue) })
	if err != nil {
		return driver.Watch{}, err
	}
	return s.watchOf(sub), nil
}

func (s *session) watchOf(sub *subscriber) driver.Watch {
	return driver.NewWatch(sub.c, func() { s.watches.unsubscribe(sub) })
}

// subscribeAll subscribes to all paths and returns once the server has set the
// watches. If own is true, the first path is the contender's.
func (s *session) subscribeAll(ctx context.Context, sub *subscriber, paths []string, own bool, arm func(path string) (watchedNode, error)) error {
	if err := s.conn.AwaitConnection(ctx); err != nil {
		return err
	}
	var joined []*watch
	for i, path := range paths {
		w, first := s.watches.subscribe(path, sub, own && i == 0)
		joined = append(joined, w)
		if !first {
			continue
		}
		job := func() { s.arm(path, w, arm) }
		if ctx.Done() == nil && i == len(paths)-1 {
			job()
		} else {
			s.conn.Work(job)
		}
	}
	for i, w := range joined {
		if err := s.awaitArmed(ctx, paths[i], w); err != nil {
			s.watches.unsubscribe(sub)
			return err
		}
	}
	return nil
}

// arm takes no context, because callers of the same path share the request.
func (s *session) arm(path string, w *watch, arm func(path string) (watchedNode, error)) {
	asked := s.own.addedSoFar()
	node, err := arm(path)
	if errors.Is(err, zk.ErrNoNode) {
		s.watches.fire(path, driver.Changed) // the node is missing
		if queue, name, ok := s.settings.splitPath(path); ok {
			s.own.nodeGone(queue, name, asked)
		}
		err = nil
	}
	s.watches.answered(path, w, node, explain(err, "watch", path, "READ on it"))
}

func (s *session) awaitArmed(ctx context.Context, path string, w *watch) error {
	select {
	case <-w.armed:
		return w.err
	case <-ctx.Done():
		return fmt.Errorf("zkdriver: watch %s: %w", zkconn.Printable(path), ctx.Err())
	case <-s.Done():
		return s.Err()
	}
}

func (s *session) watchNode(queue, path string) (watchedNode, error) {
	stored, stat, err := s.conn.WatchData(path)
	if err != nil {
		return watchedNode{}, err
	}
	n := s.newStoredNode(path, "", stored, stat)
	return watchedNode{mine: n.mine, token: n.token(), trusted: s.trustsWrite(queue, n)}, nil
}

func (s *session) watchQueue(queue string) error {
	path := s.settings.queuePath(queue)
	for range 3 {
		err := s.conn.WatchChildren(path)
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := s.makeQueue(queue); err != nil {
			return err
		}
	}
	return s.vanished(queue)
}

// watches holds a session's watches, one per path, shared by callers.
// go-zookeeper cannot remove a watch, so it stays until it fires.
type watches struct {
	mu          sync.Mutex
	closed      bool
	setInClient bool // whether watches were left at close
	paths       map[string]*watch
	breaks      uint64         // number of broken connections
	stale       map[string]int // by queue: number of watches from earlier connections
}

type watch struct {
	breaks      uint64        // value of watches.breaks when the watch was requested
	armed       chan struct{} // closed when the server has answered
	err         error         // set before armed is closed
	node        watchedNode
	over        bool // whether it has fired or was closed
	subscribers map[*subscriber]struct{}

	// Set by a reported write. Soon after a reconnect, fresh is false.
	written, fresh bool
}

// watchedNode describes the watched node at the time when the watch was set.
type watchedNode struct {
	mine    bool // whether it belongs to this session
	token   int64
	trusted bool // whether a write proves a release: see trustsWrite
}

// subscriber receives for one driver.Watch. All fields but c are guarded by
// watches.mu.
type subscriber struct {
	c        chan driver.Cause
	ownWatch *watch   // of the contender's node; nil for a queue
	watching []*watch // watches that have not ended, including ownWatch
	event    event
	over     bool // whether c is closed or has no receiver
}

// event is the state of a subscriber: no event yet, a node ahead was released,
// or a change that ends the driver.Watch.
type event int

const (
	noEvent event = iota
	releaseEvent
	endEvent
)

// any reports whether the server may still have watches of this session.
func (ws *watches) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.setInClient || len(ws.paths) > 0
}

// subscribe adds a subscriber. If first is true, the caller must arm the watch.
func (ws *watches) subscribe(path string, s *subscriber, own bool) (w *watch, first bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.paths == nil {
		ws.paths = make(map[string]*watch)
	}
	w = ws.paths[path]
	if w == nil {
		w = &watch{breaks: ws.breaks, armed: make(chan struct{}), subscribers: make(map[*subscriber]struct{})}
		w.over = ws.closed
		if !ws.closed {
			ws.paths[path] = w
		}
		first = true
	}
	if own {
		s.ownWatch = w
	}
	switch {
	case w.over:
		s.notify(endEvent)
	case s.event != endEvent:
		w.subscribers[s] = struct{}{}
		s.watching = append(s.watching, w)
	}
	return w, first
}

// covers reports whether the current connection would report the removal of
// this session's node.
func (ws *watches) covers(path string, token int64) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.paths[path]
	if w == nil || w.breaks != ws.breaks {
		return false
	}
	select {
	case <-w.armed:
		return w.err == nil && w.node.mine && w.node.token == token
	default:
		return false
	}
}

// start ends the driver.Watch if the subscriber's own node is gone.
func (ws *watches) start(s *subscriber, token int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if node := s.ownWatch.node; token != 0 && (node.token != token || !node.mine) {
		s.notify(endEvent)
	}
}

// unsubscribe removes a subscriber and leaves its channel open.
func (ws *watches) unsubscribe(s *subscriber) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s.keepOnly(nil)
	s.over = true
}

func (ws *watches) answered(path string, w *watch, node watchedNode, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.node = node
	if err != nil {
		w.err = err
		if ws.paths[path] == w {
			ws.drop(path, w)
		}
	}
	close(w.armed)
	if w.written && !w.over {
		ws.end(path, w, w.cause())
	}
}

func (ws *watches) fire(path string, why driver.Cause) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.paths[path]; w != nil {
		ws.drop(path, w)
		ws.end(path, w, why)
	}
}

// wrote handles the report of a write to a node, which ends its watch. If
// writes to the node are trusted, the write means that the lock was released.
//
// Reports after a reconnect are not trusted, for two reasons:
//
//   - The server also reports a write if another node has the same name by now.
//   - Watches are set again in several requests, so a waiter may learn of a
//     release before it learns that its own node was removed.
func (ws *watches) wrote(path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.paths[path]
	if w == nil {
		return
	}
	w.written, w.fresh = true, ws.stale[parent(path)] == 0
	ws.drop(path, w)
	select {
	case <-w.armed:
		ws.end(path, w, w.cause())
	default: // not armed yet: (*watches).answered will end the watch
	}
}

func (w *watch) cause() driver.Cause {
	if w.node.trusted && w.fresh {
		return driver.Released
	}
	return driver.Changed
}

// disconnected is called before any event of the next connection.
func (ws *watches) disconnected() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.breaks++
	ws.stale = make(map[string]int)
	for path := range ws.paths {
		ws.stale[parent(path)]++
	}
}

func (ws *watches) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed, ws.setInClient = true, ws.setInClient || len(ws.paths) > 0
	for path, w := range ws.paths {
		ws.end(path, w, driver.Changed)
	}
	clear(ws.paths)
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// The methods below require watches.mu.

func (ws *watches) drop(path string, w *watch) {
	delete(ws.paths, path)
	if w.breaks == ws.breaks {
		return
	}
	if ws.stale[parent(path)]--; ws.stale[parent(path)] <= 0 {
		delete(ws.stale, parent(path))
	}
}

func (ws *watches) end(path string, w *watch, why driver.Cause) {
	w.over = true
	for s := range w.subscribers {
		if why == driver.Released && s.ownWatch != w && s.ownWatch != nil {
			s.notify(releaseEvent)
		} else {
			s.notify(endEvent)
		}
	}
	clear(w.subscribers)
}

// notify records an event and passes it to the receiver of s.c. If a waiter's
// own node is gone, notify closes s.c, and the waiter then ignores a release.
//
// So a release may be passed on before the watch of the waiter's own node is
// set. If that node exists when the watch is set, it also existed when the lock
// was released.
func (s *subscriber) notify(e event) {
	released := s.event == releaseEvent
	s.event = max(s.event, e)
	if s.event == endEvent {
		s.keepOnly(nil)
	} else {
		s.keepOnly(s.ownWatch)
	}
	switch {
	case s.over:
	case s.event == endEvent:
		s.over = true
		close(s.c)
	case !released:
		s.c <- driver.Released
	}
}

func (s *subscriber) keepOnly(only *watch) {
	for _, w := range s.watching {
		if w != only {
			delete(w.subscribers, s)
		}
	}
	s.watching = s.watching[:0]
	if only != nil && !only.over {
		s.watching = append(s.watching, only)
	}
}
