package zkdriver

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// orphans lists the Creates whose answer was lost. Their nodes may exist under
// unknown names and would then block the queue, so the driver searches for each
// until a server has answered. When the session ends, the store removes them
// anyway.
type orphans struct {
	mu          sync.Mutex
	lastCreated map[string]driver.Node // the last node that this session created, by queue
	list        []orphan
	running     bool // whether removeOrphans is running
}

type orphan struct {
	queue, prefix string
	data          []byte
	after         driver.Node // this session's last node in the queue before the Create; zero if unknown
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

func (o *orphans) lastNode(queue string) driver.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastCreated[queue]
}

// add adds an orphan. If no goroutine is removing orphans yet, add calls start,
// which returns false if the Conn has shut down.
func (o *orphans) add(x orphan, start func() (started bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, x)
	if !o.running {
		o.running = start()
	}
}

// next returns the oldest orphan, which stays in the list until done is called.
// It returns false if the list is empty; the calling goroutine must then exit.
func (o *orphans) next() (orphan, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.list) == 0 {
		o.running = false
		return orphan{}, false
	}
	return o.list[0], true
}

func (o *orphans) done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = o.list[1:]
}

// addOrphan schedules the search for a node whose Create failed with err, if
// the node may nonetheless exist.
func (s *session) addOrphan(x orphan, err error) {
	if zkconn.Unanswered(err) && !errors.Is(err, driver.ErrSessionEnded) {
		s.orphans.add(x, s.startRemovingOrphans)
	}
}

func (s *session) startRemovingOrphans() (started bool) { return s.conn.Go(s.removeOrphans) }

func (s *session) removeOrphans() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := 10 * time.Millisecond
	for {
		select {
		case <-s.conn.Lease().Done():
			return
		case <-pause.C:
		}
		x, more := s.orphans.next()
		if !more {
			return
		}
		if err := s.removeOrphan(x); err != nil {
			wait = min(2*wait, time.Second)
			pause.Reset(wait)
			continue
		}
		s.orphans.done()
		wait = 10 * time.Millisecond
		pause.Reset(0)
	}
}

// removeOrphan looks for an orphan's node and removes it. It sends a Sync
// first, because the Create may have gone through another server. A Create
// still in flight after that is refused by the leader, because the session has
// moved to another connection since.
func (s *session) removeOrphan(x orphan) error {
	path := s.settings.queuePath(x.queue)
	if err := s.conn.Sync(path); err != nil {
		return err
	}
	names, stat, err := s.conn.Children(path)
	if err != nil {
		return ignorePermanent(err)
	}
	after := int64(-1)
	if stat.Czxid == x.after.Epoch {
		after = x.after.Seq
	}
	for _, name := range newestFirst(names, x.prefix, after) {
		found, err := s.removeIfOrphan(x, name)
		if err = ignorePermanent(err); found || err != nil {
			return err
		}
	}
	return nil
}

// removeIfOrphan removes the named node if it is the orphan. It first reads
// only the Stat, which tells the owner, because the data of other sessions'
// nodes may be large.
func (s *session) removeIfOrphan(x orphan, name string) (found bool, err error) {
	r := s.own.beginRemoval(x.queue, name)
	defer s.own.endRemoval(x.queue, r)
	child := s.settings.queuePath(x.queue) + "/" + name
	stat, err := s.conn.Stat(child)
	if err != nil || stat.EphemeralOwner != s.conn.SessionID() {
		return false, err
	}
	data, _, err := s.conn.Get(child)
	if err != nil || !bytes.Equal(data, x.data) {
		return false, err
	}
	return true, s.conn.Delete(child, -1)
}

func ignorePermanent(err error) error {
	if err == nil || errors.Is(err, zk.ErrNoNode) || zkconn.Permanent(err) {
		return nil
	}
	return err
}

// newestFirst returns the names that the orphan may have, highest sequence
// first: those with its prefix and a sequence above after. The caller takes
// after from a node of its own session, because other clients can create nodes
// with any sequence.
func newestFirst(names []string, prefix string, after int64) []string {
	type entry struct {
		name string
		seq  int64
	}
	var entries []entry
	for _, name := range names {
		if seq, ok := sequenceOf(name); ok && seq > after && strings.HasPrefix(name, prefix) {
			entries = append(entries, entry{name, seq})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(b.seq, a.seq) })
	sorted := make([]string, len(entries))
	for i, e := range entries {
		sorted[i] = e.name
	}
	return sorted
}
