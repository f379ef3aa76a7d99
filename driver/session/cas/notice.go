package cas

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// notifier is a store with notices.
type notifier struct {
	*store
	watcher Watcher
}

var _ session.Notifier = notifier{}

// Start implements session.Notifier.
func (n notifier) Start(h session.Host) { n.host = &h }

// Listening implements session.Notifier.
func (n notifier) Listening(string, bool) bool { return n.listening.Load() }

// Subscribe implements session.Notifier. Until the first notices arrive, the
// session polls.
func (n notifier) Subscribe(ctx context.Context, q session.Query) (session.Snapshot, error) {
	n.listen.Do(func() { n.host.Go(n.watch) })
	found, err := n.Look(ctx, []session.Query{q})
	if err != nil {
		return session.Snapshot{}, err
	}
	return found[0], nil
}

// watchPause is the time between two watches of the store.
const watchPause = 100 * time.Millisecond

func (n notifier) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if lost, err := n.watcher.Watch(ctx, "q/", n.changed); err == nil {
			n.listening.Store(true)
			n.host.Lost()
			select {
			case <-lost:
			case <-ctx.Done():
			}
			n.listening.Store(false)
			n.host.Lost()
		}
		_ = sleep(ctx, watchPause) // the loop ends with ctx
	}
}

// changed is called with each notice.
func (s *store) changed(key string, revision int64) {
	name, ok := queueOf(key)
	if !ok {
		return
	}
	s.host.Changed(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.queues[name]; c != nil {
		c.noticed = max(c.noticed, revision)
		if revision == 0 { // unknown
			c.noticed = c.revision + 1
		}
		s.chase(name, c)
	}
}

// chase reads a queue if there was a notice of a later revision and the session
// waits in it. The more nodes are ahead, the later it does so, because not all
// waiters need to read the queue after each change. A hand-over takes about four
// round trips. The caller holds mu.
func (s *store) chase(name string, c *cached) {
	ahead := s.waitsFor(c.queue)
	if c.noticed <= c.revision || c.chased || ahead == 0 || time.Since(c.asked) > s.timeout {
		return
	}
	c.chased = true
	noticed := c.noticed
	pause := min(time.Duration(ahead-1)*max(4*s.trip, time.Millisecond), s.timeout/8)
	s.host.Go(func(ctx context.Context) {
		if sleep(ctx, pause) != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, max(s.timeout/4, 2*time.Second))
		defer cancel()
		_, _ = s.read(limited, name) // an error leaves it to the next notice or look
		s.mu.Lock()
		defer s.mu.Unlock()
		c.chased = false
		if c.noticed == noticed {
			c.noticed = 0
		}
		s.chase(name, c)
	})
}

// waitsFor returns how many nodes are ahead of the first node of the session that
// waits. A holder waits for nothing: it sees soon enough that its node is gone.
func (s *store) waitsFor(q queue) int {
	for i, n := range q.Nodes {
		if i > 0 && n.Owner == s.id {
			return i
		}
	}
	if len(q.Nodes) > 0 && q.Nodes[0].Owner == s.id {
		return 0
	}
	return len(q.Nodes)
}

// learn records a queue that the store has returned or written, and tells the
// watches which nodes have gone. An older one is ignored.
func (s *store) learn(name string, now queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cache(name)
	if c.known && now.revision != 0 && now.revision <= c.revision {
		return
	}
	before, known := c.queue, c.known
	c.queue, c.known = now, true
	if s.host == nil || !known {
		return
	}
	defer s.chase(name, c)
	var released node
	for _, n := range before.Nodes {
		switch {
		case now.has(n.Name):
		case n.Name == now.Released:
			released = n // last, because nodes behind it may have gone before
		default:
			s.host.Gone(name, n.Name, driver.Changed, "")
		}
	}
	if released.Name != "" {
		s.host.Gone(name, released.Name, driver.Released, released.proof())
	}
}
