package session

import (
	"context"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

// notices records the notices that arrive while a Create is in flight, for the
// watch that this Create arms.
type notices struct {
	mu      sync.Mutex
	creates map[string]*recording // queues in which a Create is in flight
}

type recording struct {
	creates int // number of Creates in flight
	gone    []notice
}

type notice struct {
	node driver.Node
	why  driver.Cause
}

// record collects the notices of a queue until done is called. It is a no-op if
// line is zero, because the store then sends no notices.
func (n *notices) record(queue string, line uint64) (done func()) {
	if line == 0 {
		return func() {}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.creates == nil {
		n.creates = make(map[string]*recording)
	}
	r := n.creates[queue]
	if r == nil {
		r = new(recording)
		n.creates[queue] = r
	}
	r.creates++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if r.creates--; r.creates == 0 {
			delete(n.creates, queue)
		}
	}
}

// listen registers for the store's notices, if the store sends any. When they
// cease, the session falls back to polling at once.
func (s *Session) listen() {
	if l, ok := s.store.(Listener); ok {
		l.Notify(s.gone, s.endWatches, s.looks.wake)
	}
}

// gone tells the watches of a queue that a node was removed.
func (s *Session) gone(queue, name string, why driver.Cause) {
	_, seq, _ := driver.ParseName(name)
	n := notice{driver.Node{Name: name, Seq: seq}, why}
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	if r := s.notices.creates[queue]; r != nil {
		r.gone = append(r.gone, n)
	}
	s.watches.Gone(queue, n.node, n.why)
}

// endWatches ends all watches because notices may have been lost. Otherwise a
// waiter that missed the removal of its own node would take the lock at the
// next release.
func (s *Session) endWatches() {
	// The mutex keeps Creates from arming watches that rely on earlier notices.
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	for _, queue := range s.watches.Queues() {
		_ = s.watches.Look(queue, func() ([]driver.Place, any, error) { return nil, nil, nil })
	}
}

// line returns the number of the connection on which notices of the queue
// arrive. The number changes when notices may have been lost. It is zero if no
// notices arrive.
func (s *Session) line(queue string) uint64 {
	if l, ok := s.store.(Listener); ok {
		return l.Line(queue)
	}
	return 0
}

// armCreated arms the watch for a node just created. It makes no request if
// line, which was read before the Create, is still current, because then no
// notice has been lost.
func (s *Session) armCreated(ctx context.Context, queue string, line uint64, j driver.Joined, predecessor func([]driver.Node) int) driver.Watch {
	if predecessor == nil || len(j.Ahead) == 0 {
		return driver.Watch{}
	}
	i := predecessor(j.Ahead)
	if i < 0 {
		return driver.Watch{}
	}
	if w, ok := s.armRecorded(queue, line, j.Place, j.Ahead[i]); ok {
		return w
	}
	w, err := s.watch(ctx, queue, j.Place, j.Ahead[i])
	if err != nil {
		return driver.Watch{} // the caller calls Watch
	}
	return w
}

// armRecorded arms a watch and replays to it the notices recorded since the
// Create began.
func (s *Session) armRecorded(queue string, line uint64, p driver.Place, ahead driver.Node) (driver.Watch, bool) {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	r := s.notices.creates[queue]
	if r == nil || s.line(queue) != line {
		return driver.Watch{}, false
	}
	w := s.watches.Arm(queue, p, ahead)
	for _, n := range r.gone {
		s.watches.Gone(queue, n.node, n.why)
	}
	s.looks.wake()
	return w, true
}

// Watch implements driver.Session.
func (s *Session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	ahead = slices.Clone(ahead)
	return askQueue(ctx, s, "watch", queue, driver.Watch.Stop, func(ctx context.Context) (driver.Watch, error) {
		return s.watch(ctx, queue, p, ahead...)
	})
}

// watch subscribes to notices and arms the watch. Only then does it check that
// the nodes still exist, so that no removal is missed.
func (s *Session) watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	s.startListening(ctx, queue)
	w := s.watches.Arm(queue, p, ahead...)
	snapshot, err := s.lookAt(ctx, queue)
	if err != nil {
		w.Stop()
		return driver.Watch{}, err
	}
	if !has(snapshot, p) {
		w.Stop()
		return watches.Ended(), nil
	}
	s.looks.wake()
	return w, nil
}

func has(snapshot Snapshot, p driver.Place) bool {
	for _, r := range snapshot.Nodes {
		if r.Name == p.Name && (p.Token == 0 || r.Token == p.Token) {
			return true
		}
	}
	return false
}

// startListening subscribes to notices of the queue. It is best effort: without
// notices the session polls.
func (s *Session) startListening(ctx context.Context, queue string) {
	if l, ok := s.store.(Listener); ok && l.Line(queue) == 0 {
		ctx, cancel := s.limit(ctx)
		defer cancel()
		_, _ = l.Listen(ctx, queue)
	}
}

// WatchQueue implements [driver.Session]. It polls the queue, because the
// database sends no notices of new nodes.
func (s *Session) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	return askQueue(ctx, s, "watch", queue, driver.Watch.Stop, func(ctx context.Context) (driver.Watch, error) {
		s.startListening(ctx, queue)
		snapshot, err := s.lookAt(ctx, queue)
		if err != nil {
			return driver.Watch{}, err
		}
		return s.looks.countQueueWatch(s.watches.ArmQueue(queue, snapshot.Version)), nil
	})
}
