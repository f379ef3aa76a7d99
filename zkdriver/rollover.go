package zkdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
)

// The server counts a queue's sequences in the queue's node, so they start over
// only when that node is removed. A node with children cannot be removed, and
// queues below the queue are children of its node. If there are any, the
// contenders move to another child of the node, the successor. No queue is ever
// made below a successor, so it can be removed and recreated at any time.
//
// All sessions must agree on where the contenders are. A session uses a
// successor only after it has seen that the queue's own node has no sequences
// left and no contender. That remains true as long as the own node exists,
// because a Create in it gets a sequence past the limit and therefore removes
// its node again. And the own node exists as long as its child, the successor,
// does. What the session has seen is therefore valid for one epoch of the
// successor. The answers to Create and List show that epoch, which is later
// than the epoch of the own node. A session that does not know of the successor
// finds it with its next List or Create.

var errMoved = errors.New("zkdriver: the queue goes on in its successor")

// errNoSuccessor reports that the queue's successor node is gone. The caller
// must then check the queue's own node again.
var errNoSuccessor = fmt.Errorf("zkdriver: %w: the queue was removed while it was used", driver.ErrUnavailable)

// usedUp reports whether the queue has run out of sequence numbers. The
// Cversion of a Stat is twice the number of children ever created, minus the
// number that exist, in 32 bits.
func (s *session) usedUp(queue *zk.Stat) bool {
	return int64(uint32(queue.Cversion+queue.NumChildren)/2) >= s.settings.sequenceLimit
}

func hasContender(children []string) bool {
	return slices.ContainsFunc(children, endsInSequence)
}

// follow checks whether the contenders have moved to the queue's successor, and
// records it if so. children and stat are those of the queue's own node.
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
	// The queue may have been recreated between the two reads. Its sequences
	// would then have started over, and its successor must not be used.
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

// moveOn creates the successor of a queue that has no contenders but has other
// queues below it. The successor gets the ACL of the queue's node.
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

func needsAdmin(path string) error {
	return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end, and making the queue again with its ACL needs ADMIN on it; "+
		"a user with ADMIN can use the lock once, or an operator can remove the node and make it again", path, fs.ErrPermission)
}

// rollOver restarts the sequence numbers of a queue by removing its node. If
// there are queues below it, rollOver creates the successor instead and returns
// errMoved. While the queue has contenders, the error matches
// driver.ErrUnavailable. Tokens keep growing either way, because they are
// zxids.
func (s *session) rollOver(queue string, epoch int64) error {
	path := s.settings.queuePath(queue)
	_, isSuccessor := predecessorOf(queue)
	names, stat, err := s.conn.Children(path)
	switch {
	case err == nil && stat.Czxid != epoch: // another client has removed the queue meanwhile
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

// startOver removes the node of an empty queue. If the node is one this driver
// would make, the next Create makes it again. Otherwise startOver recreates it
// in the same transaction with its ACL and data. The new node is an ordinary
// one, because a Stat does not show whether the old one was a container.
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
		return s.conn.Delete(path, stat.Version) // fails if the queue is no longer empty
	case slices.ContainsFunc(acl, hidden):
		return needsAdmin(path)
	}
	_, err = s.conn.Multi(&zk.DeleteRequest{Path: path, Version: stat.Version}, &zk.CreateRequest{Path: path, Data: data, Acl: acl})
	return err
}
