package zkdriver

import (
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// watches is the set of watches that a server keeps for a session, one for each
// path. All callers that wait for a path share its watch. go-zookeeper cannot
// remove a watch. So a watch whose callers have all gone stays until it fires,
// and serves the next caller of its path.
//
// go-zookeeper calls a function for each event, and that function ends the
// watches. So a watch needs no goroutine.
type watches struct {
	conn *zkconn.Conn // set before the first call of subscribe
	own  *ownNodes

	mu          sync.Mutex
	closed      bool
	setInClient bool // whether there were watches when close was called; go-zookeeper has kept them
	paths       map[string]*watch
	breaks      uint64         // how often the connection broke
	stale       map[string]int // number of watches that began on an earlier connection, by path of the queue
}

// watch is the watch of one path. When it ends, it is removed from
// watches.paths.
type watch struct {
	breaks      uint64        // the value of watches.breaks when the watch was asked for
	armed       chan struct{} // closed when the server has answered
	err         error         // the error of the request for the watch, or nil; like node, set before armed is closed
	node        watchedNode
	over        bool // whether the watch has ended: it has fired, or all watches were closed
	subscribers map[*subscriber]struct{}

	// The field written is set when the server has reported a write to the
	// node. The field fresh is set at the same moment, unless a watch in the
	// queue began on an earlier connection. The comment of (*watches).written
	// gives the reason.
	written, fresh bool
}

// watchedNode is what the answer to a watch shows of the node.
type watchedNode struct {
	mine    bool // whether the node belongs to this session
	token   int64
	trusted bool // whether only the owner can write to the node, and only to release it: see trustsWrite
}

// subscriber is the driver's side of a driver.Watch. It listens to the watches
// of one or more paths. watches.mu guards all fields but c.
type subscriber struct {
	c          chan driver.Cause
	own        *watch           // the watch of the contender's own node; nil if a queue is watched
	ahead      bool             // whether the subscriber also listens to nodes ahead of its own: see notify
	watches    []*watch         // the watches that the subscriber listens to, own among them, except those that have ended
	endOfWait  func(event bool) // records the end of the wait, see ownNodes.beginWait; nil if the node does not only wait
	confirming bool             // whether the event is held back until a write is answered: see confirmLater
	event      event
	released   bool // whether Released was sent on c
	over       bool // whether c is closed, or no caller receives from it any more
}

// event is what the watches of a subscriber have reported: nothing yet, the
// release of a node ahead, or anything else, which ends the driver.Watch.
type event int

const (
	noEvent event = iota
	releaseEvent
	endEvent
)

// any reports whether go-zookeeper may have watches. It also counts watches
// that no caller waits for any more.
func (ws *watches) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.setInClient || len(ws.paths) > 0
}

// subscribe makes a subscriber listen to the watch of a path. If there is no
// watch of the path yet, subscribe makes one and returns first as true. In that
// case the caller has to arm the watch.
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

// covers reports whether the server watches this session's node of that token
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
// is not the node of that token, start reports the end of the driver.Watch. If
// the nodes ahead have caused no event yet, start records that the subscriber's
// node only waits from now on.
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

// unsubscribe forgets a subscriber. The subscriber's channel is then never
// closed.
func (ws *watches) unsubscribe(s *subscriber) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s.keepOnly(nil)
	s.over = true
	s.endWait(false)
}

// answered records the server's answer to the request for a watch. If the
// answer is an error, the server has not set the watch, and the watch is
// forgotten.
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

// fire ends the watch of a path, if there is one.
func (ws *watches) fire(path string, why driver.Cause) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.paths[path]; w != nil {
		ws.drop(path, w)
		ws.end(path, w, why)
	}
}

// written ends the watch of a node that was written to. If writes to the node
// are trusted, the node's session has written to it in order to release it.
//
// After a reconnect a report of a write does not prove that, for two reasons.
// First, the server reports a node that has changed meanwhile as written, even
// if it is another node of the same name. Second, several requests may be needed
// to set all watches again. Until then, a waiter whose own node was removed may
// hear of a write to its predecessor before it hears of that removal.
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
	default: // the method answered will end the watch
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
// next connection.
func (ws *watches) disconnected() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.breaks++
	ws.stale = make(map[string]int)
	for path := range ws.paths {
		ws.stale[parent(path)]++
	}
}

// close ends all watches for good. If the event of a subscriber is held back,
// the channel of this subscriber is closed when the lease has ended.
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

// The caller of each function below holds watches.mu. Only confirmLater locks
// it itself.

// drop removes the watch of a path from ws.paths. If ws.stale counts the watch,
// drop takes it out of that number, too.
func (ws *watches) drop(path string, w *watch) {
	delete(ws.paths, path)
	if w.breaks == ws.breaks {
		return
	}
	if ws.stale[parent(path)]--; ws.stale[parent(path)] <= 0 {
		delete(ws.stale, parent(path))
	}
}

// end tells the subscribers of a watch that the watch has ended, and why.
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
// listens to nodes ahead, its contender may act as a holder after the event. So
// the event is held back until the lease counts from a recent write, or has
// ended: see zkconn.Conn.Confirmed.
//
// confirmLater locks ws.mu, which the caller of notify holds. So confirmLater
// must not run on the goroutine of notify. Conn.Work runs a function on the
// calling goroutine only after the Conn has closed its workers, and that cannot
// have happened here. Before a Conn closes its workers, its lease ends, and then
// ws.close locks ws.mu. If ws.close has locked ws.mu before the caller of notify
// did, Conn.Confirmed returns true, because the lease has ended, and notify does
// not call Work. If the caller of notify has locked ws.mu first, ws.close waits,
// and the workers are closed only after notify has returned.
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
// delivers the event. It locks ws.mu itself. If the session has ended,
// confirmLater ends the watch, whatever the event was.
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

// endWait records that the wait of the subscriber's node is over, if the method
// start of watches has recorded that the node waits. The parameter event
// reports whether an event has ended the wait.
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
// armed. The answer to the request for that watch then shows whether the own
// node exists. If it exists, it has existed since Create, so the release may be
// reported. If it does not exist, the subscriber ends before Watch returns.
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

// keepOnly makes the subscriber listen to the given watch alone. If that watch
// is nil or over, the subscriber listens to none.
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
