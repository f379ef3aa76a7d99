package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// keptStat identifies one version of a kept value.
type keptStat struct {
	token   int64 // token of the contender that stored the value
	version int32 // version of the value's node; absent if there is no value
}

const absent = -1

// keptCache remembers which version of each kept value this session has seen
// last, which saves Keep a read. An outdated entry costs one refused
// transaction.
type keptCache struct {
	mu sync.Mutex
	of map[string]keptStat // by queue
}

func (c *keptCache) get(queue string) (k keptStat, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, known = c.of[queue]
	return k, known
}

func (c *keptCache) set(queue string, k keptStat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxKnown {
		c.of = make(map[string]keptStat)
	}
	c.of[queue] = k
}

// SetValue implements driver.Inspector. It reads the node and, unless this session has
// seen the value before, the value too. Then it sends
//
//	multi(check of the own node; setData or create of the value)
//
// which is refused if either has changed since. A node is checked by its name,
// so the check would pass if an operator removed the queue in between, and a
// client then created a node of the same name in a new queue.
func (s *session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	if err := s.settings.checkPlace(queue, p); err != nil {
		return err
	}
	if err := driver.CheckValue(value); err != nil {
		return fmt.Errorf("zkdriver: keep: %w", err)
	}
	value = appendTrailer(value, trailer{token: p.Token})
	return zkconn.AwaitErr(ctx, s.conn, func() error { return s.keep(queue, p, value) })
}

func (s *session) keep(queue string, p driver.Place, value []byte) error {
	in := s.queueOf(queue, p)
	own := s.own.find(in, p.Token)
	if own == nil {
		return fmt.Errorf("zkdriver: keep for %s of %s: %w", p.Name, s.settings.queuePath(in), driver.ErrGone)
	}
	own.busy.Lock()
	defer own.busy.Unlock()
	path := s.settings.keptPath(queue)
	known, seen := s.kept.get(queue)
	for range 4 {
		n, err := s.findNode(in, own.token, s.own.possibleNames(own))
		if errors.Is(err, driver.ErrGone) {
			s.own.forget(own.token)
		}
		if err == nil && !seen {
			_, known, err = s.readKept(queue)
		}
		if err != nil {
			return err
		}
		if known.token > p.Token {
			return fmt.Errorf("zkdriver: keep for %s of %s: %w", p.Name, s.settings.queuePath(in), driver.ErrStale)
		}
		err = s.writeKept(queue, n, known, p.Token, value)
		seen = false
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists): // changed since it was read: try again
		default:
			return explain(err, "keep", path, "WRITE on it, or CREATE on its parent")
		}
	}
	return fmt.Errorf("zkdriver: keep %s: %w: it keeps changing", path, driver.ErrUnavailable)
}

func (s *session) writeKept(queue string, n *storedNode, known keptStat, token int64, value []byte) error {
	path := s.settings.keptPath(queue)
	write := any(&zk.SetDataRequest{Path: path, Data: value, Version: known.version})
	if known.version == absent {
		if err := s.makeAncestors(path); err != nil {
			return err
		}
		if err := s.checkKeptACL(parent(path)); err != nil {
			return err
		}
		write = &zk.CreateRequest{Path: path, Data: value, Acl: s.settings.queueACL()}
	}
	results, err := s.conn.Multi(&zk.CheckVersionRequest{Path: n.path, Version: n.stat.Version}, write)
	if err == nil {
		var version int32 // 0, as a new node has
		if known.version != absent && len(results) == 2 && results[1].Stat != nil {
			version = results[1].Stat.Version
		}
		s.kept.set(queue, keptStat{token, version})
	}
	return err
}

// checkKeptACL returns an error if another user may alter one of the nodes: see
// queueacl.go. Every client may create nodes below the ancestors, so another
// user may have planted a value, or may own the node above it and remove the
// value.
func (s *session) checkKeptACL(paths ...string) error {
	if !s.settings.checksACLs() {
		return nil
	}
	for _, path := range paths {
		switch err := s.checkQueueACL(path, new(queueInfo)); {
		case errors.Is(err, zk.ErrNoNode):
			return err
		case err != nil:
			return explain(err, "look at the ACL of", path, "READ on it")
		}
	}
	return nil
}

// Value implements driver.Inspector. It takes one request, and two more to check
// the ACLs with acl=creator and acl=digest.
func (s *session) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return nil, 0, err
	}
	type kept struct {
		value []byte
		token int64
	}
	k, err := zkconn.Await(ctx, s.conn, func() (kept, error) {
		value, stat, err := s.readKept(queue)
		return kept{value, stat.token}, err
	}, nil)
	return k.value, k.token, err
}

func (s *session) readKept(queue string) (value []byte, k keptStat, err error) {
	path := s.settings.keptPath(queue)
	var stored []byte
	var stat *zk.Stat
	err = s.checkKeptACL(parent(path), path)
	if err == nil {
		stored, stat, err = s.conn.Get(path)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		k.version = absent
	case err != nil:
		return nil, k, explain(err, "read", path, "READ on it")
	default:
		var t trailer
		value, t, _ = splitTrailer(stored)
		k = keptStat{t.token, stat.Version}
	}
	s.kept.set(queue, k)
	return value, k, nil
}
