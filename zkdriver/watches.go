package zkdriver

import (
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// watches is the set of watches that a server keeps for a session, one per
// path. All callers waiting for a path share its watch. go-zookeeper cannot
// remove a watch, so one without callers stays until it fires, and serves the
// next caller of its path.
//
// go-zookeeper calls a function for each event, so a watch needs no goroutine.
type watches struct {
	conn *zkconn.Conn // set before the first call of subscribe
	own  *ownNodes

	mu          sync.Mutex
	closed      bool
	setInClient bool // whether go-zookeeper still had watches when close was called
	paths       map[string]*watch
	breaks      uint64         // number of broken connections
	stale       map[string]int // number of watches that began on an earlier connection, by queue path
}

// watch is the watch of one path. It is removed from watches.paths when it
// ends.
type watch struct {
	breaks      uint64        // the value of watches.breaks when the watch was requested
	armed       chan struct{} // closed when the server has answered
	err         error         // why the request failed; like node, set before armed is closed
	node        watchedNode
	over        bool // whether the watch has fired, or all watches were closed
	subscribers map[*subscriber]struct{}

	// Set when the server has reported a write to the node; fresh only if no
	// watch in the queue began on an earlier connection. See
	// (*watches).written.
	written, fresh bool
}

// watchedNode is the node as shown in the answer to a watch.
type watchedNode struct {
	mine    bool // whether it belongs to this session
	token   int64
	trusted bool // whether only the owner can write to it, and only to release it: see trustsWrite
}

// subscriber is the driver's side of a driver.Watch. It listens to the watches
// of one or more paths. All fields but c are guarded by watches.mu.
type subscriber struct {
	c          chan driver.Cause
	own        *watch           // the watch of the contender's own node; nil for a queue
	ahead      bool             // whether it also listens to nodes ahead of its own: see notify
	watches    []*watch         // watches that have not ended, including own
	endOfWait  func(event bool) // see ownNodes.beginWait; nil unless the node only waits
	confirming bool             // whether the event is held back until a write is answered: see confirmLater
	event      event
	released   bool // whether Released was sent on c
	over       bool // whether c is closed, or has no receiver any more
}

// event is what the watches of a subscriber have reported: nothing yet, the
// release of a node ahead, or anything else, which ends the driver.Watch.
type event int

const (
	noEvent event = iota
	releaseEvent
	endEvent
)

// any reports whether go-zookeeper may have watches, including those for which
// no caller waits any more.
func (ws *watches) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.setInClient || len(ws.paths) > 0
}

// subscribe makes a subscriber listen to the watch of a path. If it is the
// first for that path, subscribe creates the watch, and the caller has to arm
// it.
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
		s.own = w
	}
	switch {
	case w.over:
		ws.notify(s, endEvent)
	case s.event != endEvent:
		w.subscribers[s] = struct{}{}
		s.watches = append(s.watches, w)
	}
	return w, first
}

// covers reports whether the server watches this session's node with that token
// under that path, and has not reported its end.
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

// start is called when all watches of a subscriber are armed. If the own node
// does not have that token, start ends the driver.Watch. If no node ahead has
// caused an event yet, it records that the subscriber's node only waits from
// now on.
func (ws *watches) start(s *subscriber, queue string, token int64, ahead []driver.Node) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch node := s.own.node; {
	case token != 0 && (node.token != token || !node.mine):
		ws.notify(s, endEvent)
	case token != 0 && s.ahead && s.event == noEvent:
		s.endOfWait = ws.own.beginWait(queue, token, ahead)
	}
}

// unsubscribe forgets a subscriber, whose channel is then never closed.
func (ws *watches) unsubscribe(s *subscriber) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s.keepOnly(nil)
	s.over = true
	s.endWait(false)
}

// answered records the server's answer to a request for a watch. After an error
// the server has no watch, and it is forgotten.
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

// written ends the watch of a node that was written to. If writes to the node
// are trusted, the node's own session wrote to it in order to release it.
//
// After a reconnect a reported write is no such proof, for two reasons. First,
// the server reports a node that has changed meanwhile as written, even if it
// is another node of the same name. Second, setting all watches again may take
// several requests; until then, a waiter whose own node was removed may hear of
// a write to its predecessor before it hears of that removal.
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
		ws.end(path, w, w.cause())
	default: // answered will end the watch
	}
}

// cause returns what a write to the node means. The caller holds watches.mu.
func (w *watch) cause() driver.Cause {
	if w.node.trusted && w.fresh {
		return driver.Released
	}
	return driver.Changed
}

// disconnected is called when a connection has broken, before any event of the
// next one.
func (ws *watches) disconnected() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.breaks++
	ws.stale = make(map[string]int)
	for path := range ws.paths {
		ws.stale[parent(path)]++
	}
}

// close ends all watches for good. If a subscriber's event is held back, its
// channel is closed when the lease has ended.
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

// The functions below require watches.mu to be held, except confirmLater, which
// locks it.

// drop removes the watch of a path, also from the count in ws.stale.
func (ws *watches) drop(path string, w *watch) {
	delete(ws.paths, path)
	if w.breaks == ws.breaks {
		return
	}
	if ws.stale[parent(path)]--; ws.stale[parent(path)] <= 0 {
		delete(ws.stale, parent(path))
	}
}

// end tells the subscribers of a watch that it has ended, and why.
func (ws *watches) end(path string, w *watch, why driver.Cause) {
	w.over = true
	if ws.own.watchEnded(path, why) {
		ws.conn.DutyChanged()
	}
	for s := range w.subscribers {
		if why == driver.Released && s.own != w && s.own != nil {
			ws.notify(s, releaseEvent)
		} else {
			ws.notify(s, endEvent)
		}
	}
	clear(w.subscribers)
}

// notify records an event and delivers it to the caller. If the subscriber
// listens to nodes ahead, its contender may act as a holder after the event, so
// the event is held back until the lease counts from a recent write, or has
// ended: see zkconn.Conn.Confirmed.
//
// confirmLater locks ws.mu, which the caller of notify holds, so it must not
// run on this goroutine. Conn.Work runs it here only once the Conn has closed its
// workers, which cannot have happened here: before that the lease ends, and
// ws.close locks ws.mu. If ws.close got the lock first, Conn.Confirmed returns
// true, because the lease has ended, and Work is not called. If the caller of
// notify got it first, ws.close waits, and the workers are closed only after
// notify has returned.
func (ws *watches) notify(s *subscriber, e event) {
	s.event = max(s.event, e)
	if s.event == endEvent {
		s.keepOnly(nil)
	} else {
		s.keepOnly(s.own)
	}
	s.endWait(true)
	if s.confirming {
		return
	}
	if s.ahead && !ws.conn.Confirmed() {
		s.confirming = true
		ws.conn.Work(func() { ws.confirmLater(s) })
		return
	}
	s.deliver()
}

// confirmLater waits until the lease counts from a recent write, and then
// delivers the event. If the session has ended, it ends the watch, whatever the
// event was. It locks ws.mu.
func (ws *watches) confirmLater(s *subscriber) {
	ws.conn.ConfirmOrEnd()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s.confirming = false
	if ws.conn.Lease().Err() != nil {
		s.event = endEvent
		s.keepOnly(nil)
	}
	s.deliver()
}

// endWait records that the wait of the subscriber's node is over, if start has
// recorded one. The parameter event reports whether an event ended it.
func (s *subscriber) endWait(event bool) {
	if s.endOfWait != nil {
		s.endOfWait(event)
		s.endOfWait = nil
	}
}

// deliver passes the event to the caller. If the own node has gone after the
// release of a node ahead, the caller learns only that the watch has ended.
//
// The event of a release may arrive while the watch of the own node is being
// armed. The answer to that request shows whether the own node exists. If it
// does, it has existed since Create, so the release may be reported. If not,
// the subscriber ends before Watch returns.
func (s *subscriber) deliver() {
	switch {
	case s.over:
	case s.event == endEvent:
		s.over = true
		close(s.c)
	case s.event == releaseEvent && !s.released:
		s.released = true
		s.c <- driver.Released
	}
}

// keepOnly makes the subscriber listen only to the given watch, or to none if
// that is nil or over.
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
