package zkdriver

import (
	"cmp"
	"context"
	"errors"
	"slices"

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
		return s.listNodes(in)
	}, nil)
	return s.settings.layout.shownNodes(nodes), err
}

// listNodes lists the children of the queue's node, or those of its
// successor if the contenders have moved there.
func (s *session) listNodes(queue string) ([]driver.Node, error) {
	path := s.settings.queuePath(queue)
	asked := s.own.createdSoFar()
	names, stat, err := s.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		s.queues.drop(queue)
		s.own.queueGone(queue, asked)
		if before, ok := predecessorOf(queue); ok {
			s.queues.movedBack(before)
			return s.listNodes(before)
		}
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, "list", path, "READ on it")
	}
	if before, ok := predecessorOf(queue); ok {
		if _, epoch := s.queues.current(before); epoch != stat.Czxid {
			s.queues.movedBack(before)
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
