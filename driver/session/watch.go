package session

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

// Watch implements driver.Session.
func (s *Session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	return s.newWatch(ctx, queue, func(ctx context.Context) (driver.Watch, error) { return s.watch(ctx, queue, p, ahead...) })
}

// WatchQueue implements driver.Session.
func (s *Session) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	return s.newWatch(ctx, queue, func(ctx context.Context) (driver.Watch, error) { return s.watchQueue(ctx, queue) })
}

func (s *Session) newWatch(ctx context.Context, queue string, arm func(context.Context) (driver.Watch, error)) (driver.Watch, error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue)); err != nil {
		return driver.Watch{}, s.explain("watch", queue, err)
	}
	w, err := call(ctx, s, arm, func(w driver.Watch, _ error) { w.Stop() })
	if err = s.explain("watch", queue, err); err != nil {
		w.Stop()
		return driver.Watch{}, err
	}
	return w, nil
}

// watch arms the watch before it looks at the queue, so as to miss no removal.
func (s *Session) watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w := s.watches.Arm(queue, p, ahead...)
	names := []string{p.Name}
	for _, n := range ahead {
		names = append(names, n.Name)
	}
	now, err := s.compare(ctx, Query{Queue: queue, Names: names, Own: p.Name})
	if err != nil {
		w.Stop()
		return driver.Watch{}, err
	}
	s.prove(queue, now.Nodes, names...)
	if !has(now.Nodes, p) {
		w.Stop()
		return watches.Ended(), nil
	}
	s.looks.wake()
	return w, nil
}

func has(nodes []Node, p driver.Place) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == p.Name && (p.Token == 0 || n.Token == p.Token) })
}

// prove sets the Proof that a notice of a node's release must carry.
func (s *Session) prove(queue string, nodes []Node, names ...string) {
	for _, n := range nodes {
		if n.Proof != "" && slices.Contains(names, n.Name) {
			s.watches.Prove(queue, n.Name, n.Proof)
		}
	}
}

// watchQueue arms a watch that ends when the version changes or, in a store
// without versions, with the next notice or poll.
func (s *Session) watchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w := s.watches.ArmQueue(queue, nil)
	now, err := s.subscribe(ctx, Query{Queue: queue})
	if err != nil || now.Version != 0 {
		w.Stop()
	}
	if err != nil {
		return driver.Watch{}, err
	}
	if now.Version != 0 {
		w = s.watches.ArmQueue(queue, now.Version)
	}
	s.looks.wake()
	return w, nil
}

// notices passes notices on to the watches. It records those during a change,
// because a Create arms its watch afterwards.
type notices struct {
	mu     sync.Mutex
	arming map[*arming]bool
	losses int            // how many times notices may have been lost
	stale  map[string]int // loss number of each queue not read since
}

// arming holds the notices that arrive while a change is in flight.
type arming struct {
	queue string
	gone  []notice
	told  []func(string) bool // passed to Host.Noticed
	lost  bool                // whether notices may have been lost
}

type notice struct {
	node  driver.Node
	why   driver.Cause
	proof string
}

func (n *notices) record(queue string) *arming {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := &arming{queue: queue}
	n.arming[a] = true
	return a
}

// stop ends the recording, after the watches were told the store's answer.
func (s *Session) stop(a *arming) {
	s.notices.mu.Lock()
	delete(s.notices.arming, a)
	s.notices.mu.Unlock()
	for _, gone := range a.told {
		s.told(a.queue, gone)
	}
}

func (s *Session) told(queue string, gone func(name string) bool) {
	if slices.ContainsFunc(s.watches.Names(queue), gone) {
		s.looks.now(queue)
	}
}

// armAnnounced arms the watch for Create and replays recorded notices. It
// returns false if any may be lost.
func (s *Session) armAnnounced(a *arming, p driver.Place, ahead driver.Node, nodes []Node) (driver.Watch, bool) {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	if a.lost {
		return driver.Watch{}, false
	}
	w := s.watches.Arm(a.queue, p, ahead)
	s.prove(a.queue, nodes, ahead.Name)
	for _, n := range a.gone {
		s.watches.Announced(a.queue, n.node, n.why, n.proof)
	}
	s.looks.wake()
	return w, true
}

// Host has the methods of a session that its [Starter] may call. They do not
// block, and may be called at any time after Start.
type Host struct{ s *Session }

// Gone tells the session that a node was removed or renamed, and implies
// Changed. Calls for the same queue must be in the order of the removals. A
// waiter takes the lock at once only if why is driver.Released and proof is the
// [Node.Proof] that the session has read, so that a forged notice cannot hand
// over a lock.
func (h Host) Gone(queue, name string, why driver.Cause, proof string) {
	_, seq, _ := driver.ParseName(name)
	n := notice{driver.Node{Name: name, Seq: seq}, why, proof}
	notices := &h.s.notices
	notices.mu.Lock()
	defer notices.mu.Unlock()
	if notices.stale[queue] != 0 {
		// The waiter must check whether its own node still exists.
		n.why = driver.Changed
	}
	for a := range notices.arming {
		if a.queue == queue {
			a.gone = append(a.gone, n)
		}
	}
	h.s.watches.Announced(queue, n.node, n.why, n.proof)
}

// Changed tells the session that the nodes of a queue have changed, for example
// that one was added. It ends only the watches of the whole queue.
func (h Host) Changed(queue string) { h.s.watches.Changed(queue) }

// Noticed tells the session that a queue has changed. The function gone reports
// whether a node seems to be removed. If it returns true for a watched node,
// the session looks at the queue.
func (h Host) Noticed(queue string, gone func(name string) bool) {
	s := h.s
	s.watches.Changed(queue)
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	recorded := false
	for a := range s.notices.arming {
		if a.queue == queue {
			a.told, recorded = append(a.told, gone), true // stop calls gone, after the store's answer
		}
	}
	if !recorded {
		s.told(queue, gone)
	}
}

// Watched reports whether the queue has an open watch.
func (h Host) Watched(queue string) bool { return h.s.watches.Has(queue) }

// Look makes the session look at its queues at once. It is for notices that do
// not say what has changed.
func (h Host) Look() { h.s.looks.now(h.s.watches.Queues()...) }

// Lost tells the session that notices may have been lost, so that it looks at
// its queues. The store calls Lost when notices cease to arrive, and again when
// they resume, before it passes on the first of them.
func (h Host) Lost() {
	n := &h.s.notices
	n.mu.Lock()
	n.losses++
	for a := range n.arming {
		a.lost = true
	}
	clear(n.stale) // queues without watches need no entry
	for _, queue := range h.s.watches.Queues() {
		n.stale[queue] = n.losses
	}
	n.mu.Unlock()
	h.Look()
}

// Go runs f on a goroutine, unless the session is closed. Close waits for f,
// whose context ends with the session.
func (h Host) Go(f func(ctx context.Context)) {
	h.s.group.Go(func() { f(h.s.life) })
}

// looked is called after the queue was read. The argument losses is n.losses
// from before the read.
func (n *notices) looked(queue string, losses int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stale[queue] <= losses {
		delete(n.stale, queue)
	}
}

func (n *notices) lossesSoFar() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.losses
}

func (n *notices) isStale(queue string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stale[queue] != 0
}
