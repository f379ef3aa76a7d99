package zkdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// List implements driver.Session. It takes one request.
func (s *session) List(ctx context.Context, queue string) ([]driver.Node, error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return nil, err
	}
	nodes, err := zkconn.Await(ctx, s.conn, func() ([]driver.Node, error) {
		in, _ := s.queues.current(queue)
		nodes, err := s.listNodes(in)
		s.queues.noteShared(in, len(nodes) > 0 && nodes[0] != s.orphans.lastNode(in))
		return nodes, err
	}, nil)
	return s.settings.layout.shownNodes(nodes), err
}

// listNodes lists a queue's contenders, even if they moved to its successor.
func (s *session) listNodes(queue string) ([]driver.Node, error) {
	path := s.settings.queuePath(queue)
	asked := s.own.addedSoFar()
	names, stat, err := s.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		s.queues.drop(queue)
		s.own.queueGone(queue, asked)
		if before, ok := predecessorOf(queue); ok {
			s.queues.moved.Delete(before)
			return s.listNodes(before)
		}
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, "list", path, "READ on it")
	}
	if before, ok := predecessorOf(queue); ok {
		if _, epoch := s.queues.current(before); epoch != stat.Czxid {
			s.queues.moved.Delete(before)
			return s.listNodes(before)
		}
	} else if moved, err := s.follow(queue, names, stat); err != nil {
		return nil, explain(err, "list", path, "READ on it")
	} else if moved {
		return s.listNodes(successorOf(queue))
	}
	s.queues.aclSeen(queue, stat.Czxid, stat.Aversion)
	nodes := sorted(names, stat.Czxid)
	s.own.queueListed(queue, stat.Czxid, stat.Pzxid, nodes)
	return nodes, nil
}

func sorted(children []string, epoch int64) []driver.Node {
	nodes := make([]driver.Node, 0, len(children))
	for _, name := range children {
		if seq, ok := sequenceOf(name); ok {
			nodes = append(nodes, driver.Node{Name: name, Seq: seq, Epoch: epoch})
		}
	}
	slices.SortFunc(nodes, func(a, b driver.Node) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Name, b.Name))
	})
	return nodes
}

// Read implements driver.Inspector. The name need not end in a sequence. The
// owner is the session id, formatted as by ZooKeeper's own tools.
func (s *session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return driver.NodeInfo{}, err
	}
	if err := checkName(name); err != nil {
		return driver.NodeInfo{}, err
	}
	queue, _ = s.queues.current(queue)
	name = s.settings.layout.stored(name)
	info, err := zkconn.Await(ctx, s.conn, func() (driver.NodeInfo, error) { return s.readNode(queue, name) }, nil)
	info.Name = s.settings.layout.shown(info.Name)
	return info, err
}

func (s *session) readNode(queue, name string) (driver.NodeInfo, error) {
	path := s.settings.queuePath(queue)
	for range 3 {
		asked := s.own.addedSoFar()
		n, err := s.readStored(queue, name)
		if errors.Is(err, zk.ErrNoNode) {
			s.own.nodeGone(queue, name, asked)
		}
		if err != nil {
			return driver.NodeInfo{}, explain(err, "read", path+"/"+name, "READ on it")
		}
		parent, err := s.conn.Stat(path)
		if err != nil {
			return driver.NodeInfo{}, explain(err, "look at", path, "READ on it")
		}
		s.own.epochSeen(queue, parent.Czxid)
		if parent.Czxid <= n.stat.Czxid {
			return n.info(parent.Czxid), nil
		} // the queue was recreated between the two requests
	}
	return driver.NodeInfo{}, s.vanished(queue)
}

func (n *storedNode) info(epoch int64) driver.NodeInfo {
	seq, _ := sequenceOf(n.name)
	info := driver.NodeInfo{
		Node:    driver.Node{Name: n.name, Seq: seq, Epoch: epoch},
		Token:   n.token(),
		Data:    n.data,
		Created: time.UnixMilli(n.created()),
		Foreign: !n.mine,
	}
	if n.stat.EphemeralOwner != 0 {
		info.Owner = zkconn.FormatID(n.stat.EphemeralOwner)
	}
	return info
}

// Walk implements driver.Inspector. It reads the nodes one by one and returns
// the queues that have contenders. It skips nodes that this user may not read,
// but fails if the user may not read the node of the prefix itself.
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	if prefix != "" {
		if err := s.settings.checkQueue(prefix); err != nil {
			return nil, err
		}
	}
	return zkconn.Await(ctx, s.conn, func() ([]string, error) { return s.walk(ctx, prefix) }, nil)
}

func (s *session) walk(ctx context.Context, prefix string) (queues []string, err error) {
	for left := []string{prefix}; len(left) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("zkdriver: %w", err)
		}
		name := left[len(left)-1]
		left = left[:len(left)-1]
		children, _, err := s.conn.Children(s.walkPath(name))
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case errors.Is(err, zk.ErrNoAuth) && name != prefix:
			continue
		case err != nil:
			return nil, explain(err, "list", s.walkPath(name), "READ on it")
		}
		found := false
		for _, child := range children {
			if _, contender := sequenceOf(child); contender {
				found = true
				continue
			}
			below := unescapeSegment(child)
			if name != "" {
				below = name + "/" + below
			}
			if child == successor && name != "" || s.settings.checkQueue(below) == nil {
				left = append(left, below)
			}
		}
		if before, ok := predecessorOf(name); ok {
			name = before
		}
		if found && name != "" {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues), nil
}

func (s *session) walkPath(name string) string {
	switch {
	case name != "":
		return s.settings.queuePath(name)
	case s.settings.chroot != "":
		return s.settings.chroot
	}
	return "/"
}
