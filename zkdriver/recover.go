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
)

// leftover removes nodes whose Create was not answered. Such a node may be there or not, and
// its name is not known; but it belongs to this session and holds the data of that call. While
// the session lives they are looked for, again and again until the server has answered; when it
// ends, they go by themselves.
type leftover struct {
	mu      sync.Mutex
	lasts   map[string]driver.Node // the last node that this session has made, by queue
	orphans []lost
	running bool
}

// lost is a Create that was not answered.
type lost struct {
	queue, prefix string
	data          []byte
	after         driver.Node // an earlier one of this session in that queue
}

// saw records a node that this session has made.
func (l *leftover) saw(queue string, n driver.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.lasts[queue]
	switch {
	case known && (n.Epoch < last.Epoch || n.Epoch == last.Epoch && n.Seq <= last.Seq):
		return
	case l.lasts == nil || !known && len(l.lasts) >= maxKnown:
		l.lasts = make(map[string]driver.Node)
	}
	l.lasts[queue] = n
}

func (l *leftover) last(queue string) driver.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lasts[queue]
}

// orphan takes down a Create that ended with err, if that leaves a doubt.
func (l *leftover) orphan(s *session, err error, o lost) {
	if unanswered(err) && !errors.Is(err, driver.ErrSessionEnded) {
		l.add(s, o)
	}
}

func (l *leftover) add(s *session, o lost) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans = append(l.orphans, o)
	if !l.running {
		l.running = s.workers.run(func() { l.sweep(s) })
	}
}

// next returns the oldest, which stays in the list until done.
func (l *leftover) next() (lost, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.orphans) == 0 {
		l.running = false
		return lost{}, false
	}
	return l.orphans[0], true
}

func (l *leftover) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans = l.orphans[1:]
}

// sweep works until nothing is left to do, or the session has ended.
func (l *leftover) sweep(s *session) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	wait := 10 * time.Millisecond
	for {
		select {
		case <-s.lease.Done():
			return
		case <-pause.C:
		}
		o, more := l.next()
		if !more {
			return
		}
		if err := s.removeLost(o); err != nil {
			wait = min(2*wait, time.Second)
			pause.Reset(wait)
			continue
		}
		l.done()
		wait = 10 * time.Millisecond
		pause.Reset(0)
	}
}

// removeLost looks for the node and removes it. It asks for a Sync first: the request may have
// gone to the leader through another server than the present one. A request that comes to the
// leader after that, by the old way, is refused, because the session has moved.
func (s *session) removeLost(o lost) error {
	path := s.settings.queuePath(o.queue)
	if err := s.sync(path); err != nil {
		return err
	}
	names, stat, err := s.children(path)
	if err != nil {
		return given(err)
	}
	after := int64(-1)
	if stat.Czxid == o.after.Epoch {
		after = o.after.Seq
	}
	for _, name := range newestFirst(names, o.prefix, after) {
		found, err := s.removeIfLost(o, name)
		if err = given(err); found || err != nil {
			return err
		}
	}
	return nil
}

// removeIfLost removes the node of that name if it is the lost one. It asks for
// the owner first: the data of other sessions' nodes may be long.
func (s *session) removeIfLost(o lost, name string) (found bool, err error) {
	r := s.owned.beginRemoval(o.queue, name)
	defer s.owned.endRemoval(o.queue, r)
	child := s.settings.queuePath(o.queue) + "/" + name
	stat, err := s.stat(child)
	if err != nil || stat.EphemeralOwner != s.link.sessionID() {
		return false, err
	}
	data, _, err := s.get(child)
	if err != nil || !bytes.Equal(data, o.data) {
		return false, err
	}
	return true, s.remove(child, -1)
}

// given takes answers that another try will not change for done.
func given(err error) error {
	if err == nil || errors.Is(err, zk.ErrNoNode) || permanent(err) {
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
