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
	seen    int64 // the highest zxid that this session knows of
	orphans []lost
	running bool
}

// lost is a Create that was not answered.
type lost struct {
	queue, prefix string
	data          []byte
	since         int64 // a zxid before it
}

func (l *leftover) saw(zxid int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = max(l.seen, zxid)
}

func (l *leftover) since() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
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
	names, _, err := s.children(path)
	if err != nil {
		return given(err)
	}
	for _, name := range newestFirst(names, o.prefix) {
		child := path + "/" + name
		data, stat, err := s.get(child)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case errors.Is(err, zk.ErrNoAuth): // not one that we could have made
			continue
		case err != nil:
			return err
		case stat.EphemeralOwner == s.link.sessionID() && bytes.Equal(data, o.data):
			return given(s.remove(child, -1))
		case stat.Czxid <= o.since:
			return nil // all others are older
		}
	}
	return nil
}

// given takes answers that another try will not change for done.
func given(err error) error {
	if err == nil || errors.Is(err, zk.ErrNoNode) || permanent(err) {
		return nil
	}
	return err
}

// newestFirst returns those of names that the prefix begins, the highest sequence first.
func newestFirst(names []string, prefix string) []string {
	type entry struct {
		name string
		seq  int64
	}
	var entries []entry
	for _, name := range names {
		if _, seq, ok := driver.ParseName(name); ok && strings.HasPrefix(name, prefix) {
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
