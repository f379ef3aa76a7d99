package cas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// queue is the value of a queue's key.
type queue struct {
	Nodes    []node `json:",omitempty"` // oldest first
	Last     int64  // the greatest token so far
	Released string `json:",omitempty"` // name of the node that was released last
	Value    *value `json:",omitempty"`

	revision int64
}

// value is the value beside a queue, with the token of the node that set it.
type value struct {
	Token int64
	Text  []byte
}

// node is a node of a queue. Nodes of other programs only have names and data.
//
// The write that adds a node does not know its own revision, which is the token
// and sequence. Until the queue is written again, Token is therefore zero and
// Name is just the prefix. Readers fill them in, and so must any other program
// before it writes the key.
type node struct {
	Name   string
	Token  int64  `json:",omitempty"`
	Owner  string `json:",omitempty"`
	Number int64  `json:",omitempty"` // of the Create in the session
	Data   []byte `json:",omitempty"`
}

// place returns the place of a node that a session has made.
func (n node) place() driver.Place {
	return driver.Place{Node: driver.Node{Name: n.Name, Seq: n.Token}, Token: n.Token}
}

func (q queue) snapshot() session.Snapshot {
	now := session.Snapshot{Version: q.revision + 1, Released: q.Released}
	for _, n := range q.Nodes {
		now.Nodes = append(now.Nodes, session.Node{Name: n.Name, Token: n.Token})
	}
	return now
}

func decode(e Entry) (queue, error) {
	q := queue{revision: e.Revision}
	if err := json.Unmarshal(e.Value, &q); e.Value != nil && err != nil {
		return q, fmt.Errorf("key %s: %w", e.Key, err)
	}
	for i := range q.Nodes {
		if n := &q.Nodes[i]; n.Token == 0 && n.Owner != "" {
			n.Token = max(e.Revision, q.Last+1) // Last is greater if a backup was restored
			n.Name = driver.FormatName(n.Name, n.Token)
		}
		q.Last = max(q.Last, q.Nodes[i].Token)
	}
	return q, nil
}

func encode(v any) []byte {
	b, _ := json.Marshal(v) // never fails for the types of this package
	return b
}

// cached is what the session knows about a key.
type cached struct {
	turn  sync.Mutex // held while the session changes a queue, so that its own changes need not conflict
	Entry            // the latest one; this and the rest are guarded by store.mu
	since time.Time  // when it was first seen
	used  time.Time  // when the session last used it
	known bool       // nothing later was noticed
	doubt bool       // a Create may have added a node without an answer
}

// with calls f with what the session knows about a key that it uses now.
func (s *store) with(key string, f func(*cached)) *cached {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cache[key]
	if c == nil {
		c = new(cached)
		s.cache[key] = c
	}
	c.used = time.Now()
	f(c)
	return c
}

// learn records an entry that the store has returned or written, unless the
// session has learned a later one since it knew that of the revision before.
func (s *store) learn(before int64, e Entry) {
	s.with(e.Key, func(c *cached) {
		if c.Revision != before && c.Revision > e.Revision {
			return
		}
		if c.Revision != e.Revision {
			c.since = time.Now()
		}
		c.Entry, c.known = e, true
	})
}

// get returns the entry of a key, from the cache unless it must be fresh.
func (s *store) get(ctx context.Context, key string, fresh bool) (e Entry, err error) {
	s.with(key, func(c *cached) { e, fresh = c.Entry, fresh || !c.known })
	if !fresh {
		return e, nil
	}
	before := e.Revision
	e, err = s.kv.Get(ctx, key)
	if e.Key = key; err == nil {
		s.learn(before, e)
	}
	return e, err
}

// write writes an entry, and returns it with its new revision.
func (s *store) write(ctx context.Context, e Entry, guard ...Entry) (Entry, error) {
	before := e.Revision
	revision, err := s.kv.Write(ctx, e, guard...)
	if e.Revision = revision; err == nil {
		s.learn(before, e)
	}
	return e, err
}

// edit changes a queue with f, on the condition that the session with that key
// lives, or that it does not. f may get an old queue from the cache, but then its
// error does not count. If edit does not make the change, and never will, the
// error is Refused.
func (s *store) edit(ctx context.Context, name, guard string, lives bool, f func(*queue) error) (q queue, err error) {
	c := s.with(queueKey(name), func(*cached) {})
	c.turn.Lock()
	defer c.turn.Unlock()
	for try, sent := 0, int64(-1); ; try++ {
		e, err := s.get(ctx, queueKey(name), try > 0)
		if err != nil {
			return q, session.Refused(err)
		}
		g, err := s.get(ctx, guard, e.Revision == sent) // then the queue was not the reason
		sent = e.Revision
		if err == nil && (g.Value != nil) != lives {
			err = errEnded
		}
		if err == nil {
			q, err = decode(e)
		}
		if err == nil {
			err = f(&q)
		}
		switch {
		case err != nil && try > 0:
			return q, session.Refused(err)
		case err != nil:
			continue
		}
		e.Value = encode(q)
		if e, err = s.write(ctx, e, g); err == nil {
			return decode(e)
		}
		if !errors.Is(err, ErrConflict) {
			return q, err
		}
		time.Sleep(rand.N(time.Millisecond << min(try, 6)))
	}
}
