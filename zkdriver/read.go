package zkdriver

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Read implements driver.Inspector, even for nodes whose names lack a
// sequence. The owner is the session id, formatted as by ZooKeeper's own tools.
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
		asked := s.own.createdSoFar()
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
