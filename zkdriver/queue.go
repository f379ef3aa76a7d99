package zkdriver

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// prepareQueue returns how to create nodes in a queue. If the session has not
// used the queue yet, prepareQueue reads the queue's node, or creates it.
func (s *session) prepareQueue(queue string) (queueInfo, error) {
	if info := s.queues.get(queue); info.mode != unknown {
		return info, nil
	}
	path := s.settings.queuePath(queue)
	data, stat, err := s.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		if err := s.makeQueue(queue); err != nil {
			return queueInfo{}, err
		}
		data, stat, err = s.conn.Get(path)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return queueInfo{}, s.vanished(queue)
	}
	if err != nil {
		return queueInfo{}, explain(err, "look at", path, "READ on it")
	}
	info := queueInfo{mode: withWrite}
	if len(data) > 0 {
		info.mode = withoutWrite
	}
	if s.settings.checksACLs() {
		err := s.checkQueueACL(path, &info)
		if errors.Is(err, zk.ErrNoNode) {
			return queueInfo{}, s.vanished(queue)
		}
		if err != nil {
			return queueInfo{}, explain(err, "look at the ACL of", path, "READ on it")
		}
	}
	if s.usedUp(stat) {
		info = queueInfo{mode: draining, epoch: stat.Czxid}
	}
	s.queues.set(queue, info)
	return info, nil
}

func (s *session) vanished(queue string) error {
	s.queues.drop(queue)
	return fmt.Errorf("zkdriver: %s: %w: the queue was removed while it was used", s.settings.queuePath(queue), driver.ErrUnavailable)
}

// makeQueue creates the queue's node and any missing ancestors. The node is a
// container if the server supports containers. makeQueue never creates a
// successor; moveOn does that.
func (s *session) makeQueue(queue string) error {
	if before, ok := predecessorOf(queue); ok {
		s.queues.movedBack(before)
		return errNoSuccessor
	}
	path := s.settings.queuePath(queue)
	for range 3 {
		err := s.makeQueueNode(path, s.settings.queueACL())
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return explain(err, "make", path, "CREATE on its parent")
		}
		if err := s.makeAncestors(path); err != nil {
			return err
		}
	}
	return s.vanished(queue)
}

func (s *session) makeQueueNode(path string, acl []zk.ACL) error {
	if !s.queues.noContainers.Load() {
		err := s.conn.CreateContainer(path, acl)
		if err == nil || !zkconn.Unimplemented(err) {
			return err
		}
		s.queues.noContainers.Store(true)
	}
	_, err := s.conn.Create(path, nil, zk.FlagPersistent, acl)
	return err
}

// makeAncestors creates the missing nodes above path. They are never removed,
// because other clients may rely on them.
func (s *session) makeAncestors(path string) error {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		ancestor := path[:i]
		if _, err := s.conn.Stat(ancestor); err == nil {
			continue
		} else if !errors.Is(err, zk.ErrNoNode) {
			return explain(err, "look at", ancestor, "READ on it")
		}
		_, err := s.conn.Create(ancestor, nil, zk.FlagPersistent, s.settings.ancestorACL())
		if err != nil && !errors.Is(err, zk.ErrNodeExists) && !errors.Is(err, zk.ErrNoNode) {
			return explain(err, "make", ancestor, "CREATE on its parent")
		}
	}
	return nil
}
