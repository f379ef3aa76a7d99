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

// valueStat identifies one version of a value.
type valueStat struct {
	token   int64 // token of the contender that stored the value
	version int32 // of the value's node, or absent
}

const absent = -1

// valueCache saves reads. An outdated entry costs one refused transaction.
type valueCache struct {
	mu sync.Mutex
	of map[string]valueStat // by queue
}

func (c *valueCache) get(queue string) (k valueStat, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, known = c.of[queue]
	return k, known
}

func (c *valueCache) set(queue string, k valueStat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || len(c.of) >= maxKnown {
		c.of = make(map[string]valueStat)
	}
	c.of[queue] = k
}

// SetValue implements driver.Inspector, with
//
//	multi(check of the contender's node; setData or create of the value)
//
// The server refuses the transaction if the node or the value has changed since
// it was read. The check names only a path, so it accepts a node of the same
// name in a queue that was recreated since.
func (s *session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	if err := s.settings.checkPlace(queue, p); err != nil {
		return err
	}
	if err := driver.CheckValue(value); err != nil {
		return fmt.Errorf("zkdriver: set value: %w", err)
	}
	value = appendTrailer(value, trailer{token: p.Token})
	return zkconn.AwaitErr(ctx, s.conn, func() error { return s.setValue(queue, p, value) })
}

func (s *session) setValue(queue string, p driver.Place, value []byte) error {
	in := s.queueOf(queue, p)
	own := s.own.find(in, p.Token)
	if own == nil {
		return fmt.Errorf("zkdriver: set value for %s of %s: %w", p.Name, s.settings.queuePath(in), driver.ErrGone)
	}
	own.busy.Lock()
	defer own.busy.Unlock()
	path := s.settings.valuePath(queue)
	known, seen := s.values.get(queue)
	for range 4 {
		n, err := s.findNode(in, own.token, s.own.possibleNames(own))
		if errors.Is(err, driver.ErrGone) {
			s.own.forget(own.token)
		}
		if err == nil && !seen {
			_, known, err = s.readValue(queue)
		}
		if err != nil {
			return err
		}
		if known.token > p.Token {
			return fmt.Errorf("zkdriver: set value for %s of %s: %w", p.Name, s.settings.queuePath(in), driver.ErrStale)
		}
		err = s.writeValue(queue, n, known, p.Token, value)
		seen = false
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists): // changed since it was read: try again
		default:
			return explain(err, "set the value at", path, "WRITE on it, or CREATE on its parent")
		}
	}
	return fmt.Errorf("zkdriver: set value %s: %w: it keeps changing", path, driver.ErrUnavailable)
}

func (s *session) writeValue(queue string, n *storedNode, known valueStat, token int64, value []byte) error {
	path := s.settings.valuePath(queue)
	write := any(&zk.SetDataRequest{Path: path, Data: value, Version: known.version})
	if known.version == absent {
		if err := s.makeAncestors(path); err != nil {
			return err
		}
		if err := s.checkValueACL(parent(path)); err != nil {
			return err
		}
		write = &zk.CreateRequest{Path: path, Data: value, Acl: s.settings.queueACL()}
	}
	results, err := s.conn.Multi(&zk.CheckVersionRequest{Path: n.path, Version: n.stat.Version}, write)
	if err == nil {
		var version int32 // a new node has version 0
		if known.version != absent && len(results) == 2 && results[1].Stat != nil {
			version = results[1].Stat.Version
		}
		s.values.set(queue, valueStat{token, version})
	}
	return err
}

// checkValueACL refuses nodes that another user may alter or have planted.
func (s *session) checkValueACL(paths ...string) error {
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

// Value implements driver.Inspector. It takes one request. With acl=creator and
// acl=digest, two more requests check the ACLs.
func (s *session) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return nil, 0, err
	}
	type stored struct {
		value []byte
		token int64
	}
	v, err := zkconn.Await(ctx, s.conn, func() (stored, error) {
		value, stat, err := s.readValue(queue)
		return stored{value, stat.token}, err
	}, nil)
	return v.value, v.token, err
}

func (s *session) readValue(queue string) (value []byte, k valueStat, err error) {
	path := s.settings.valuePath(queue)
	var stored []byte
	var stat *zk.Stat
	err = s.checkValueACL(parent(path), path)
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
		k = valueStat{t.token, stat.Version}
	}
	s.values.set(queue, k)
	return value, k, nil
}
