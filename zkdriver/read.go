package zkdriver

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Read implements driver.NodeReader, also for nodes that are not sequenced. Owner is the id of the
// session, as ZooKeeper's own tools show it.
func (s *session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return driver.NodeInfo{}, err
	}
	if err := checkName(name); err != nil {
		return driver.NodeInfo{}, err
	}
	return zkconn.Await(ctx, s.conn, func() (driver.NodeInfo, error) { return s.readNode(queue, name) }, nil)
}

func (s *session) readNode(queue, name string) (driver.NodeInfo, error) {
	path := s.settings.queuePath(queue)
	for range 3 {
		asked := s.own.createdSoFar()
		f, err := s.readStored(queue, name)
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
		if parent.Czxid <= f.stat.Czxid {
			return f.info(parent.Czxid), nil
		} // else the queue was made anew between the two
	}
	return driver.NodeInfo{}, s.vanished(queue)
}

func (f *storedNode) info(epoch int64) driver.NodeInfo {
	seq, _ := sequenceOf(f.name)
	info := driver.NodeInfo{
		Node:    driver.Node{Name: f.name, Seq: seq, Epoch: epoch},
		Token:   f.token(),
		Data:    f.data,
		Created: time.UnixMilli(f.created()),
		Foreign: !f.mine,
	}
	if f.stat.EphemeralOwner != 0 {
		info.Owner = zkconn.FormatID(f.stat.EphemeralOwner)
	}
	return info
}
