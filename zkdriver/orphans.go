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

// orphans removes nodes whose Create was not answered. Such a node may be there or not, and
// its name is not known; but it belongs to this session and holds the data of that call. While
// the session lives they are looked for, again and again until the server has answered; when it
// ends, they go by themselves.
type orphans struct {
	mu          sync.Mutex
	lastCreated map[string]driver.Node // the last node that this session has made, by queue
	list        []orphan
	running     bool
}

// orphan is a Create that was not answered.
type orphan struct {
	queue, prefix string
	data          []byte
	after         driver.Node // an earlier one of this session in that queue
}

// created records a node that this session has made.
func (l *orphans) created(queue string, n driver.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.lastCreated[queue]
	switch {
	case known && (n.Epoch < last.Epoch || n.Epoch == last.Epoch && n.Seq <= last.Seq):
		return
	case l.lastCreated == nil || !known && len(l.lastCreated) >= maxKnown:
		l.lastCreated = make(map[string]driver.Node)
	}
	l.lastCreated[queue] = n
}

func (l *orphans) lastNode(queue string) driver.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastCreated[queue]
}

// addIfUnanswered takes down a Create that ended with err, if that leaves a doubt.
func (l *orphans) addIfUnanswered(s *session, err error, o orphan) {
	if zkconn.Unanswered(err) && !errors.Is(err, driver.ErrSessionEnded) {
		l.add(s, o)
	}
}

func (l *orphans) add(s *session, o orphan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, o)
	if !l.running {
		l.running = s.conn.Go(func() { l.sweep(s) })
	}
}

// next returns the oldest, which stays in the list until done.
func (l *orphans) next() (orphan, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == 0 {
		l.running = false
		return orphan{}, false
	}
	return l.list[0], true
}

func (l *orphans) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = l.list[1:]
}

// sweep works until nothing is left to do, or the session has ended.
func (l *orphans) sweep(s *session) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := 10 * time.Millisecond
	for {
		select {
		case <-s.conn.Lease().Done():
			return
		case <-pause.C:
		}
		o, more := l.next()
		if !more {
			return
		}
		if err := s.removeOrphan(o); err != nil {
			wait = min(2*wait, time.Second)
			pause.Reset(wait)
			continue
		}
		l.done()
		wait = 10 * time.Millisecond
		pause.Reset(0)
	}
}

// removeOrphan looks for the node and removes it. It asks for a Sync first: the request may have
// gone to the leader through another server than the present one. A request that comes to the
// leader after that, by the old way, is refused, because the session has moved.
func (s *session) removeOrphan(o orphan) error {
	path := s.settings.queuePath(o.queue)
	if err := s.conn.Sync(path); err != nil {
		return err
	}
	names, stat, err := s.conn.Children(path)
	if err != nil {
		return ignorePermanent(err)
	}
	after := int64(-1)
	if stat.Czxid == o.after.Epoch {
		after = o.after.Seq
	}
	for _, name := range newestFirst(names, o.prefix, after) {
		found, err := s.removeIfOrphan(o, name)
		if err = ignorePermanent(err); found || err != nil {
			return err
		}
	}
	return nil
}

// removeIfOrphan removes the node of that name if it is the lost one. It asks for
// the owner first: the data of other sessions' nodes may be long.
func (s *session) removeIfOrphan(o orphan, name string) (found bool, err error) {
	r := s.own.beginRemoval(o.queue, name)
	defer s.own.endRemoval(o.queue, r)
	child := s.settings.queuePath(o.queue) + "/" + name
	stat, err := s.conn.Stat(child)
	if err != nil || stat.EphemeralOwner != s.conn.SessionID() {
		return false, err
	}
	data, _, err := s.conn.Get(child)
	if err != nil || !bytes.Equal(data, o.data) {
		return false, err
	}
	return true, s.conn.Delete(child, -1)
}

// ignorePermanent takes answers that another try will not change for done.
func ignorePermanent(err error) error {
	if err == nil || errors.Is(err, zk.ErrNoNode) || zkconn.Permanent(err) {
		return nil
	}
	return err
}

// newestFirst returns those of names that the prefix begins and whose sequence
// comes after that one, the highest first. The server has given the lost node a
// higher sequence than any earlier node of this session. The sequences of other
// nodes prove nothing: a client may choose any.
func newestFirst(names []string, prefix string, after int64) []string {
	type entry struct {
		name string
		seq  int64
	}
	var entries []entry
	for _, name := range names {
		if _, seq, ok := driver.ParseName(name); ok && seq > after && strings.HasPrefix(name, prefix) {
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
