package zkdriver

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// A waiting node is next in line if the node that it waits for is the first of
// its queue. Its session then keeps sending writes, so that the release of that
// first node can grant the lock at once: see zkconn.Next.
//
// To learn that its node is next in line, a session lists the queue once its
// latest write is a quarter of the session timeout old. If the awaited node is
// not the first one yet, the session watches the node directly before it,
// called V below. The release of V makes the own node next in line. If V ends
// in another way, the session lists the queue again.
//
// All this is only a hint. A wrong hint costs a write, and a missing one delays
// a grant by a write, because zkconn.Conn.Confirm decides before each grant.

// turn tracks whether a waiting node of this session is next in line, that is,
// waits for the first node of its queue.
type turn struct {
	// Guarded by ownNodes.mu, except ahead, which is never changed.
	ahead []driver.Node // nodes that the node waits for
	state turnState
	node  *ownNode
	v     string // path of the node directly before the awaited one; "" unless the state is behind
}

type turnState int

const (
	over   turnState = iota // the node no longer waits
	unsure                  // unknown whether the node is next in line
	behind                  // not next in line; the node at turn.v exists and is watched
	next
)

// setTurn changes the state of a turn. It is a no-op if the turn is over. The
// caller holds o.mu.
func (o *ownNodes) setTurn(t *turn, state turnState, v string) {
	switch t.state {
	case over:
		return
	case unsure:
		delete(o.unsure, t)
	case behind:
		if delete(o.behind[t.v], t); len(o.behind[t.v]) == 0 {
			delete(o.behind, t.v)
		}
	case next:
		o.next--
	}
	t.state, t.v = state, v
	switch state {
	case unsure:
		o.unsure[t] = struct{}{}
	case behind:
		if o.behind[v] == nil {
			o.behind[v] = make(map[*turn]struct{})
		}
		o.behind[v][t] = struct{}{}
	case next:
		o.next++
	}
}

func (o *ownNodes) beginTurn(n *ownNode, ahead []driver.Node) {
	o.endTurn(n)
	if o.unsure == nil {
		o.unsure, o.behind = make(map[*turn]struct{}), make(map[string]map[*turn]struct{})
	}
	n.turn = &turn{ahead: ahead, node: n, state: unsure}
	o.unsure[n.turn] = struct{}{}
}

// endTurn ends the turn of a node that no longer waits. The caller holds o.mu.
func (o *ownNodes) endTurn(n *ownNode) {
	if n.turn != nil {
		o.setTurn(n.turn, over, "")
		n.turn = nil
	}
}

// watchEnded updates the turns that depend on the watch of a path, after that
// watch has ended. It reports whether any turn has changed.
func (o *ownNodes) watchEnded(path string, why driver.Cause) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := unsure
	if why == driver.Released { // the released node was the first of its queue
		state = next
	}
	for t := range o.behind[path] {
		o.setTurn(t, state, "")
		changed = true
	}
	return changed
}

func (o *ownNodes) turnsUnknown() map[string][]*turn {
	o.mu.Lock()
	defer o.mu.Unlock()
	byQueue := make(map[string][]*turn)
	for t := range o.unsure {
		byQueue[t.node.queue] = append(byQueue[t.node.queue], t)
	}
	return byQueue
}

// learn updates a turn after a list or a watch has shown which nodes are ahead.
// It is a no-op if the turn is over.
func (o *ownNodes) learn(t *turn, state turnState, v string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setTurn(t, state, v)
}

// lookAhead finds out which of the session's waiting nodes are next in line. It
// sends one request at a time to avoid bursts.
func (s *session) lookAhead() (err error) {
	for queue, turns := range s.own.turnsUnknown() {
		if s.own.duty() != zkconn.Unsure { // otherwise the session already sends writes
			return err
		}
		if e := s.lookAheadIn(queue, turns); e != nil {
			err = e
		}
	}
	return err
}

func (s *session) lookAheadIn(queue string, turns []*turn) (err error) {
	nodes, err := s.listChildren(queue)
	if err != nil {
		return err
	}
	for _, t := range turns {
		i := slices.IndexFunc(nodes, func(n driver.Node) bool {
			return slices.ContainsFunc(t.ahead, func(a driver.Node) bool { return a.Name == n.Name })
		})
		if i <= 0 { // 0: next in line; -1: nobody is ahead, so the wait is about to end
			s.own.learn(t, next, "")
			continue
		}
		v := s.settings.queuePath(queue) + "/" + nodes[i-1].Name
		s.own.learn(t, behind, v)
		if e := s.watchAhead(queue, v); e != nil {
			s.own.learn(t, unsure, "")
			err = e
		}
	}
	return err
}

// watchAhead makes the server watch the node at path, so that watchEnded is
// called when that node is removed.
func (s *session) watchAhead(queue, path string) error {
	nobody := &subscriber{c: make(chan driver.Cause, 1)}
	w, first := s.watches.subscribe(path, nobody, false)
	defer s.watches.unsubscribe(nobody)
	if first {
		s.arm(path, w, func(path string) (watchedNode, error) { return s.watchNode(queue, path) })
	}
	select {
	case <-w.armed:
		return w.err
	case <-s.Done():
		return s.Err()
	}
}
