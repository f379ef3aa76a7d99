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

// watches holds what the server watches for a session, one watch for each path,
// shared by all callers that wait for that path. ZooKeeper (as go-zookeeper
// speaks to it) cannot take a watch back: one that no caller waits for any more
// stays until the node goes, and serves the next caller.
//
// Watches are ended by go-zookeeper's event callback, so that none takes a
// goroutine.
type watches struct {
	session *session

	mu          sync.Mutex
	closed      bool
	setInClient bool // there were some when it was closed: go-zookeeper has them still
	paths       map[string]*watch
	breaks      uint64         // how often the connection broke
	stale       map[string]int // watches of an earlier connection, by the queue's path
}

// watch is one path. It leaves the map when it ends.
type watch struct {
	breaks      uint64        // that at which it was asked for
	armed       chan struct{} // closed when the server has answered
	err         error         // set before that
	node        watchedNode   // likewise
	over        bool          // the node is gone, or something changed
	subscribers map[*subscriber]struct{}

	// A write was reported before the answer was looked at: what it means is seen then.
	written, fresh bool
}

// watchedNode is what the answer to a watch has shown of the node.
type watchedNode struct {
	mine    bool // the node belongs to this session
	token   int64
	trusted bool // a write to it is a Release, see believes
}

// subscriber is a driver.Watch: it hears the watches of one or more paths. All but
// c is guarded by watches.mu.
type subscriber struct {
	c          chan driver.Cause
	own        *watch          // of the contender's own node; nil for a queue
	ahead      bool            // it hears watches of nodes ahead: news may make a holder
	watches    []*watch        // own and all others that have not ended
	endOfWait  func(news bool) // notes that this wait has ended; nil: the node does not only wait
	confirming bool            // the caller learns of news later
	news       news
	released   bool // Released was sent
	over       bool // c is closed, or no caller receives from it any more
}

// news is what a subscriber has heard.
type news int

const (
	heardNothing news = iota
	heardRelease
	heardEnd
)

// Watch implements driver.Session. A node is watched through its data: a write
// to it is the first part of its release, if it is guarded. A watch for a
// missing node is not set. The answer to the watch of the own node shows which
// node it is: a node is that of p only if both its token and its session are.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	if err := s.checkPlace(queue, p); err != nil {
		return driver.Watch{}, err
	}
	path := s.settings.queuePath(queue)
	paths := []string{path + "/" + p.Name}
	for _, n := range ahead {
		if err := checkName(n.Name); err != nil {
			return driver.Watch{}, err
		}
		paths = append(paths, path+"/"+n.Name)
	}
	l := &subscriber{c: make(chan driver.Cause, 1), ahead: len(ahead) > 0}
	err := s.subscribeAll(ctx, l, paths, true, func(path string) (watchedNode, error) { return s.watchNode(queue, path) })
	if err != nil {
		return driver.Watch{}, err
	}
	s.watches.start(l, queue, p.Token)
	return s.watchOf(l), nil
}

// WatchQueue implements driver.Session through the queue's children. It makes
// the queue where it is missing.
func (s *session) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return driver.Watch{}, err
	}
	l := &subscriber{c: make(chan driver.Cause, 1)}
	path := s.settings.queuePath(queue)
	err := s.subscribeAll(ctx, l, []string{path}, false, func(string) (watchedNode, error) { return watchedNode{}, s.watchQueue(queue) })
	if err != nil {
		return driver.Watch{}, err
	}
	return s.watchOf(l), nil
}

func (s *session) watchOf(l *subscriber) driver.Watch {
	return driver.NewWatch(l.c, func() { s.watches.unsubscribe(l) })
}

// subscribeAll has a subscriber hear the watches of all paths, the first of which may
// be that of its own node. It returns when they are armed. The requests are
// sent at once, without waiting for each other's answers.
func (s *session) subscribeAll(ctx context.Context, l *subscriber, paths []string, own bool, arm func(path string) (watchedNode, error)) error {
	if err := s.conn.Lease().Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	var joined []*watch
	for i, path := range paths {
		w, first := s.watches.subscribe(path, l, own && i == 0)
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
		if err := s.armed(ctx, paths[i], w); err != nil {
			s.watches.unsubscribe(l)
			return err
		}
	}
	return nil
}

// arm asks the server. The answer is for every caller that waits, so it does
// not depend on the ctx of one of them.
func (s *session) arm(path string, w *watch, arm func(path string) (watchedNode, error)) {
	asked := s.own.createdSoFar()
	seen, err := arm(path)
	if errors.Is(err, zk.ErrNoNode) {
		s.watches.fire(path, driver.Changed) // at once
		if queue, name, ok := s.settings.splitPath(path); ok {
			s.own.nodeGone(queue, name, asked)
		}
		err = nil
	}
	s.watches.answered(path, w, seen, explain(err, "watch", path, "READ on it"))
}

// armed waits until the server has answered.
func (s *session) armed(ctx context.Context, path string, w *watch) error {
	select {
	case <-w.armed:
		return w.err
	case <-ctx.Done():
		return fmt.Errorf("zkdriver: watch %s: %w", zkconn.Printable(path), ctx.Err())
	case <-s.conn.Lease().Done():
		return s.conn.Lease().Err()
	}
}

func (s *session) watchNode(queue, path string) (watchedNode, error) {
	stored, stat, err := s.conn.WatchData(path)
	if err != nil {
		return watchedNode{}, err
	}
	f := storedNode{stat: stat, mine: stat.EphemeralOwner == s.conn.SessionID()}
	f.data, f.trailer, _ = splitTrailer(stored)
	return watchedNode{mine: f.mine, token: f.token(), trusted: s.trustsWrite(queue, &f)}, nil
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

// any reports whether go-zookeeper may have watches, also such as no caller
// waits for any more.
func (ws *watches) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.setInClient || len(ws.paths) > 0
}

// subscribe has a subscriber hear the watch of a path. If there is none yet it makes
// one, which the caller has to arm then.
func (ws *watches) subscribe(path string, l *subscriber, own bool) (w *watch, first bool) {
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
		l.own = w
	}
	switch {
	case w.over:
		ws.notify(l, heardEnd)
	case l.news != heardEnd:
		w.subscribers[l] = struct{}{}
		l.watches = append(l.watches, w)
	}
	return w, first
}

// start ends a subscriber whose own node is another one than that of the token.
// If the subscriber has heard nothing yet of the nodes ahead, its node only waits
// from now on.
func (ws *watches) start(l *subscriber, queue string, token int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch seen := l.own.node; {
	case token != 0 && (seen.token != token || !seen.mine):
		ws.notify(l, heardEnd)
	case token != 0 && l.ahead && l.news == heardNothing:
		l.endOfWait = ws.session.own.beginWait(queue, token)
	}
}

// unsubscribe forgets a subscriber. Its channel never closes.
func (ws *watches) unsubscribe(l *subscriber) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	l.keepOnly(nil)
	l.over = true
	l.endWait(false)
}

// answered passes on what the server said. A watch that it did not set is
// forgotten.
func (ws *watches) answered(path string, w *watch, seen watchedNode, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.node = seen
	if err != nil {
		w.err = err
		if ws.paths[path] == w {
			ws.drop(path, w)
		}
	}
	close(w.armed)
	if w.written && !w.over {
		ws.end(w, w.cause())
	}
}

// fire ends the watch of a path.
func (ws *watches) fire(path string, why driver.Cause) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.paths[path]; w != nil {
		ws.drop(path, w)
		ws.end(w, why)
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
	w.written, w.fresh = true, ws.stale[parent(path)] == 0
	ws.drop(path, w)
	select {
	case <-w.armed:
		ws.end(w, w.cause())
	default: // answered does it
	}
}

// cause returns what a write means. It needs watches.mu.
func (w *watch) cause() driver.Cause {
	if w.node.trusted && w.fresh {
		return driver.Released
	}
	return driver.Changed
}

// disconnected is called when a connection has broken, before anything comes
// from the next one.
func (ws *watches) disconnected() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.breaks++
	ws.stale = make(map[string]int)
	for path := range ws.paths {
		ws.stale[parent(path)]++
	}
}

// drop takes a watch out of the map. It needs ws.mu.
func (ws *watches) drop(path string, w *watch) {
	delete(ws.paths, path)
	if w.breaks == ws.breaks {
		return
	}
	if ws.stale[parent(path)]--; ws.stale[parent(path)] <= 0 {
		delete(ws.stale, parent(path))
	}
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// close ends all watches, for good. A subscriber that settles hears of it when the
// lease has ended.
func (ws *watches) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed, ws.setInClient = true, ws.setInClient || len(ws.paths) > 0
	for _, w := range ws.paths {
		ws.end(w, driver.Changed)
	}
	clear(ws.paths)
}

// The rest needs ws.mu.

// end has the subscribers of a watch hear of its end.
func (ws *watches) end(w *watch, why driver.Cause) {
	w.over = true
	for l := range w.subscribers {
		if why == driver.Released && l.own != w && l.own != nil {
			ws.notify(l, heardRelease)
		} else {
			ws.notify(l, heardEnd)
		}
	}
	clear(w.subscribers)
}

// notify has a caller learn what its subscriber has heard. If it has heard of nodes
// ahead, the contender may act as a holder then, so the lease is settled first.
//
// The job never runs before tell returns. The workers are closed after the lease
// has ended and close has had ws.mu, and settled reports true then.
func (ws *watches) notify(l *subscriber, what news) {
	l.news = max(l.news, what)
	if l.news == heardEnd {
		l.keepOnly(nil)
	} else {
		l.keepOnly(l.own)
	}
	l.endWait(true)
	if l.confirming {
		return
	}
	if l.ahead && !ws.session.conn.Confirmed() {
		l.confirming = true
		ws.session.conn.Work(func() { ws.confirmLater(l) })
		return
	}
	l.deliver()
}

// endWait notes the end of the wait, if there is one.
func (s *subscriber) endWait(news bool) {
	if s.endOfWait != nil {
		s.endOfWait(news)
		s.endOfWait = nil
	}
}

// confirmLater is called without ws.mu. The end of the session ends the watch,
// whatever it has heard.
func (ws *watches) confirmLater(l *subscriber) {
	ws.session.conn.ConfirmOrEnd()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	l.confirming = false
	if ws.session.conn.Lease().Err() != nil {
		l.news = heardEnd
		l.keepOnly(nil)
	}
	l.deliver()
}

// deliver tells the caller. If the own node has gone after the release of a node
// ahead, the caller hears of the end alone.
//
// A release may be heard of while the watch of the own node is being armed. Its
// answer decides then: a node that stands has stood all the time since Create,
// and one that does not ends the subscriber before the caller gets it.
func (s *subscriber) deliver() {
	switch {
	case s.over:
	case s.news == heardEnd:
		s.over = true
		close(s.c)
	case s.news == heardRelease && !s.released:
		s.released = true
		s.c <- driver.Released
	}
}

// keepOnly has the subscriber hear nothing but one watch further, or nothing at all.
func (s *subscriber) keepOnly(only *watch) {
	for _, w := range s.watches {
		if w != only {
			delete(w.subscribers, s)
		}
	}
	s.watches = s.watches[:0]
	if only != nil && !only.over {
		s.watches = append(s.watches, only)
	}
}
