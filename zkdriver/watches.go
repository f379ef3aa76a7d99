package zkdriver

import (
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// watches is the watches that a server has for a session, one for each path.
// All callers that wait for a path share its watch. go-zookeeper cannot remove
// a watch. So a watch without callers stays until it fires, and serves the next
// caller.
//
// go-zookeeper's event callback ends the watches, so that a watch needs no
// goroutine.
type watches struct {
	conn *zkconn.Conn // set before the first subscriber
	own  *ownNodes

	mu          sync.Mutex
	closed      bool
	setInClient bool // there were watches when it was closed: go-zookeeper still has them
	paths       map[string]*watch
	breaks      uint64         // how often the connection broke
	stale       map[string]int // watches of an earlier connection, by the queue's path
}

// watch is the watch of one path. It leaves watches.paths when it ends.
type watch struct {
	breaks      uint64        // watches.breaks when the watch was asked for
	armed       chan struct{} // closed when the server has answered
	err         error         // set before armed is closed, like node
	node        watchedNode
	over        bool // the node is gone, or something changed
	subscribers map[*subscriber]struct{}

	// written is set when a write was reported. fresh is set then if no watch
	// in the queue is of an earlier connection, see watches.written.
	written, fresh bool
}

// watchedNode is what the answer to a watch shows of the node.
type watchedNode struct {
	mine    bool // the node belongs to this session
	token   int64
	trusted bool // a write to it is a release, see trustsWrite
}

// subscriber is the driver's side of a driver.Watch. It listens to the watches
// of one or more paths. watches.mu guards all fields but c.
type subscriber struct {
	c          chan driver.Cause
	own        *watch           // of the contender's own node; nil for a queue
	ahead      bool             // it listens to nodes ahead: an event may make its contender a holder
	watches    []*watch         // own and all others that have not ended
	endOfWait  func(event bool) // see ownNodes.beginWait; nil if the node does not only wait
	confirming bool             // the event is delivered after Confirm
	event      event
	released   bool // Released was sent
	over       bool // c is closed, or no caller receives from it any more
}

// event is what the watches of a subscriber have reported.
type event int

const (
	noEvent event = iota
	releaseEvent
	endEvent
)

// any reports whether go-zookeeper may have watches, including those that no
// caller waits for any more.
func (ws *watches) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.setInClient || len(ws.paths) > 0
}

// subscribe makes a subscriber listen to the watch of a path. If there is no
// watch yet, subscribe makes one; first is true then, and the caller has to arm
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

// start ends a subscriber whose own node is not the one of that token. If no
// event has come yet of the nodes ahead, the subscriber's node only waits from
// now on.
func (ws *watches) start(s *subscriber, queue string, token int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch node := s.own.node; {
	case token != 0 && (node.token != token || !node.mine):
		ws.notify(s, endEvent)
	case token != 0 && s.ahead && s.event == noEvent:
		s.endOfWait = ws.own.beginWait(queue, token)
	}
}

// unsubscribe forgets a subscriber. Its channel is never closed.
func (ws *watches) unsubscribe(s *subscriber) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s.keepOnly(nil)
	s.over = true
	s.endWait(false)
}

// answered records the server's answer to a watch. If it is an error, the
// server has not set the watch, and the watch is forgotten.
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

// written ends the watch of a node that was written to. If writes to the node
// are trusted, its session has written to it in order to release it.
//
// After a reconnect that does not hold. The server then reports a node that has
// changed since as written, even if it is another node of the same name. And it
// may need several requests to set all watches again. So the end of a node may
// be reported later than that of another node whose watch is new, for as long
// as there is an older watch in the queue.
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
	default: // answered ends it
	}
}

// cause returns what a write to the node means. It needs watches.mu.
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

// close ends all watches, for good. A subscriber that is confirming learns of
// it when the lease has ended.
func (ws *watches) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed, ws.setInClient = true, ws.setInClient || len(ws.paths) > 0
	for _, w := range ws.paths {
		ws.end(w, driver.Changed)
	}
	clear(ws.paths)
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// The caller of each function below holds watches.mu, except for confirmLater.

// drop removes a watch from paths.
func (ws *watches) drop(path string, w *watch) {
	delete(ws.paths, path)
	if w.breaks == ws.breaks {
		return
	}
	if ws.stale[parent(path)]--; ws.stale[parent(path)] <= 0 {
		delete(ws.stale, parent(path))
	}
}

// end notifies the subscribers of a watch that it has ended.
func (ws *watches) end(w *watch, why driver.Cause) {
	w.over = true
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
// listens to nodes ahead, its contender may act as a holder after that. So the
// session is confirmed first.
//
// confirmLater never runs before notify returns: Work runs a job at once only
// after the Conn has shut down. Before that, the lease has ended and close has
// held ws.mu, so Confirmed reports true.
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

// confirmLater confirms the session and then delivers the event. It locks ws.mu
// itself. If the session has ended, the watch ends, whatever the event was.
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

// endWait records the end of the wait, if there is one.
func (s *subscriber) endWait(event bool) {
	if s.endOfWait != nil {
		s.endOfWait(event)
		s.endOfWait = nil
	}
}

// deliver passes the event to the caller. If the own node has gone after the
// release of a node ahead, the caller learns only of the end.
//
// The event of a release may arrive while the watch of the own node is being
// armed. The answer to that watch decides then: a node that exists has existed
// since Create, and a node that does not exist ends the subscriber before Watch
// returns it.
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

// keepOnly makes the subscriber listen to that watch alone, or to none if it is
// nil or over.
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
