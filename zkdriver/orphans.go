package zkdriver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// orphans holds unanswered Creates, whose nodes may block the queue until a
// search finds them.
type orphans struct {
	mu          sync.Mutex
	lastCreated map[string]driver.Node // by queue: this session's latest node
	sought      map[orphan]search
	running     bool // whether removeOrphans is running
}

// orphan identifies a node by its data, which is different for each Create.
type orphan struct{ queue, data string }

// search describes which nodes may be an orphan.
type search struct {
	prefix string
	after  driver.Node // the session's previous node, if known
}

func (x search) mayBe(n driver.Node) bool {
	return strings.HasPrefix(n.Name, x.prefix) && (n.Epoch != x.after.Epoch || n.Seq > x.after.Seq)
}

func (o *orphans) noteCreated(queue string, n driver.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, known := o.lastCreated[queue]
	switch {
	case known && (n.Epoch < last.Epoch || n.Epoch == last.Epoch && n.Seq <= last.Seq):
		return
	case o.lastCreated == nil || !known && len(o.lastCreated) >= maxKnown:
		o.lastCreated = make(map[string]driver.Node)
	}
	o.lastCreated[queue] = n
}

// lastNode returns this session's latest node in the queue. Searches begin
// behind it. Other sessions' nodes may have any sequence.
func (o *orphans) lastNode(queue string) driver.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastCreated[queue]
}

// add adds an orphan. If it returns true, the caller must start removeOrphans.
func (o *orphans) add(x orphan, where search) (start bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sought == nil {
		o.sought = make(map[orphan]search)
	}
	o.sought[x] = where
	start, o.running = !o.running, true
	return start
}

func (o *orphans) has(x orphan) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, there := o.sought[x]
	return there
}

// all returns all orphans. If there are none, the calling goroutine must exit.
func (o *orphans) all() map[orphan]search {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = len(o.sought) > 0
	return maps.Clone(o.sought)
}

func (o *orphans) done(gone map[orphan]search) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for x := range gone {
		delete(o.sought, x)
	}
}

func (s *session) addOrphan(queue string, data []byte, where search) {
	if s.orphans.add(orphan{queue, string(data)}, where) {
		s.conn.Go(s.removeOrphans)
	}
}

func (s *session) removeOrphans() {
	const shortest = 10 * time.Millisecond
	for wait := shortest; s.conn.AwaitConnection(context.Background()) == nil; {
		all := s.orphans.all()
		if len(all) == 0 {
			return
		}
		if s.remove(all) == nil {
			s.orphans.done(all)
			wait = shortest
			continue
		}
		select {
		case <-s.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, time.Second)
	}
}

// remove searches for orphans and removes them. After the Sync, the server
// shows their nodes, and the leader refuses Creates from earlier connections.
func (s *session) remove(all map[orphan]search) error {
	if err := s.conn.Sync("/"); err != nil {
		return err
	}
	searches := make(map[string]map[search]bool) // by queue
	for x, where := range all {
		if searches[x.queue] == nil {
			searches[x.queue] = make(map[search]bool)
		}
		searches[x.queue][where] = true
	}
	return together(slices.Collect(maps.Keys(searches)), func(queue string) error {
		return s.removeIn(queue, slices.Collect(maps.Keys(searches[queue])))
	})
}

// removeIn starts with the oldest node, so no waiter meets two orphans.
func (s *session) removeIn(queue string, searches []search) error {
	names, stat, err := s.conn.Children(s.settings.queuePath(queue))
	if err != nil {
		return ignorePermanent(err)
	}
	nodes := slices.DeleteFunc(sorted(names, stat.Czxid), func(n driver.Node) bool {
		return !slices.ContainsFunc(searches, func(x search) bool { return x.mayBe(n) })
	})
	return together(nodes, func(n driver.Node) error {
		return ignorePermanent(s.removeIfOrphan(queue, n.Name))
	})
}

// removeIfOrphan reads the Stat first, because the data of other sessions'
// nodes may be large.
func (s *session) removeIfOrphan(queue, name string) error {
	r := s.own.beginRemoval(queue, name)
	defer s.own.endRemoval(queue, r)
	path := s.settings.queuePath(queue) + "/" + name
	stat, err := s.conn.Stat(path)
	if err != nil || stat.EphemeralOwner != s.conn.SessionID() {
		return err
	}
	data, _, err := s.conn.Get(path)
	if err != nil || !s.orphans.has(orphan{queue, string(data)}) {
		return err
	}
	return s.conn.Delete(path, -1)
}

// together calls f for up to 32 items at once. It returns the first error.
func together[T any](items []T, f func(T) error) error {
	var g errgroup.Group
	g.SetLimit(32)
	for _, x := range items {
		g.Go(func() error { return f(x) })
	}
	return g.Wait()
}

func ignorePermanent(err error) error {
	if err == nil || errors.Is(err, zk.ErrNoNode) || zkconn.Permanent(err) {
		return nil
	}
	return err
}
