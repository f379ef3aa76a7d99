package zkdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
)

// The server counts the sequences of a queue in the queue's node, and the count
// ends with that node. A node that has children cannot be removed, and the queues
// below a queue are children of its node. So if there are such queues, the
// contenders move to a child of the node, the successor. No queue is ever made
// below a successor, so it can be removed and made again like any queue.
//
// All sessions have to agree on the place. A session uses a successor only if it
// has seen that the sequences of the node above are used up, and that this node
// has no contender. Both stay so as long as that node exists: a Create in the
// node gets a sequence past the limit, and removes its node again. And the node
// exists as long as its successor does. So what the session has seen holds for one
// epoch of the successor, and the answers to Create and List show the epoch. It is
// later than the epoch of the node above. A session that does not know of the
// successor finds it in its next List, or in its next Create.

// errMoved says that the contenders of the queue are in its successor now.
var errMoved = errors.New("zkdriver: the queue goes on in its successor")

// errNoSuccessor says that a successor is gone, so the node above has to be looked
// at again.
var errNoSuccessor = fmt.Errorf("zkdriver: %w: the queue was removed while it was used", driver.ErrUnavailable)

// usedUp reports whether the next contender of a queue would get a sequence past
// the limit. The Cversion of a Stat is twice the number of children ever created,
// less the number of those that exist, in 32 bits.
func (s *session) usedUp(queue *zk.Stat) bool {
	return int64(uint32(queue.Cversion+queue.NumChildren)/2) >= s.settings.sequenceLimit
}

func hasContender(children []string) bool {
	return slices.ContainsFunc(children, endsInSequence)
}

// follow is called with the children of a queue and its Stat. If the contenders
// of the queue are in its successor, follow records that and returns true.
func (s *session) follow(queue string, children []string, stat *zk.Stat) (moved bool, err error) {
	if !s.usedUp(stat) || hasContender(children) || !slices.Contains(children, successor) {
		return false, nil
	}
	next, err := s.conn.Stat(s.settings.queuePath(successorOf(queue)))
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The queue may have been made again between the two answers. Then its
	// sequences are new, and so is the successor.
	_, again, err := s.conn.Children(s.settings.queuePath(queue))
	if errors.Is(err, zk.ErrNoNode) || err == nil && again.Czxid != stat.Czxid {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.queues.setMoved(queue, next.Czxid)
	return true, nil
}

// moveOn makes the successor of a queue that has no contender, but queues below
// it. The successor gets the ACL of the queue's node.
func (s *session) moveOn(queue string, epoch int64) error {
	path := s.settings.queuePath(queue)
	acl, _, err := s.conn.GetACL(path)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(acl, hidden) {
		return needsAdmin(path)
	}
	if err := s.makeQueueNode(s.settings.queuePath(successorOf(queue)), acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	names, stat, err := s.conn.Children(path)
	if err != nil || stat.Czxid != epoch {
		return err
	}
	moved, err := s.follow(queue, names, stat)
	switch {
	case err != nil:
		return err
	case !moved:
		return zk.ErrNotEmpty
	}
	return errMoved
}

// needsAdmin returns the error for a queue whose ACL this client cannot copy.
func needsAdmin(path string) error {
	return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end, and making the queue again with its ACL needs ADMIN on it; "+
		"a user with ADMIN can use the lock once, or an operator can remove the node and make it again", path, fs.ErrPermission)
}

// rollOver removes a queue without contenders whose sequence numbers are used
// up, so that the sequences start over. If there are queues below it, rollOver
// returns errMoved instead: then its successor is in use. Tokens still grow,
// because a token is a zxid, which the store counts. While the queue has
// contenders, rollOver returns an error that matches driver.ErrUnavailable.
func (s *session) rollOver(queue string, epoch int64) error {
	path := s.settings.queuePath(queue)
	_, isSuccessor := predecessorOf(queue)
	names, stat, err := s.conn.Children(path)
	switch {
	case err == nil && stat.Czxid != epoch: // another client has removed the old queue
	case err == nil && len(names) > 0 && (hasContender(names) || isSuccessor || !s.usedUp(stat)):
		err = zk.ErrNotEmpty
	case err == nil && len(names) > 0:
		err = s.moveOn(queue, epoch)
	case err == nil:
		err = s.startOver(path)
	}
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists):
		s.queues.drop(queue)
		return nil
	case errors.Is(err, errMoved):
		return err
	case errors.Is(err, zk.ErrNotEmpty):
		return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end and start over once no client holds the lock or waits for it", path, driver.ErrUnavailable)
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end, and starting over needs CREATE and DELETE on the parent, or CREATE on the queue: %w", path, driver.ErrUnavailable, err)
	}
	return explain(err, "start over the sequences of", path, "CREATE and DELETE on its parent")
}

// startOver removes the node of an empty queue. If the node is as this driver
// makes it, the next Create makes it again. Otherwise it is the node of an
// operator. In that case startOver makes it again in the same transaction, with
// its ACL and its data. The new node is an ordinary node, because a Stat does
// not show whether the old node was a container.
func (s *session) startOver(path string) error {
	data, stat, err := s.conn.Get(path)
	if err != nil {
		return err
	}
	acl, aclStat, err := s.conn.GetACL(path)
	switch {
	case err != nil:
		return err
	case len(data) == 0 && aclStat.Aversion == 0 && slices.Equal(acl, s.settings.queueACL()):
		return s.conn.Delete(path, stat.Version) // fails if the queue is not empty any more
	case slices.ContainsFunc(acl, hidden):
		return needsAdmin(path)
	}
	_, err = s.conn.Multi(&zk.DeleteRequest{Path: path, Version: stat.Version}, &zk.CreateRequest{Path: path, Data: data, Acl: acl})
	return err
}
