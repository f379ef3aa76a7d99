package zkdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
)

// rollOver removes an empty queue whose sequence numbers are used up, so that
// the sequences start over. Tokens still grow, because a token is a zxid, which
// the store counts. While the queue is not empty, rollOver returns an error
// that matches driver.ErrUnavailable.
func (s *session) rollOver(queue string, epoch int64) error {
	path := s.settings.queuePath(queue)
	names, stat, err := s.conn.Children(path)
	switch {
	case err == nil && stat.Czxid != epoch: // another client has removed the old queue
	case err == nil && len(names) > 0:
		err = zk.ErrNotEmpty
	case err == nil:
		err = s.startOver(path)
	}
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists):
		s.queues.drop(queue)
		return nil
	case errors.Is(err, zk.ErrNotEmpty):
		return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end and start over once the queue, with the queues below it, is empty", path, driver.ErrUnavailable)
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end, and starting over needs CREATE and DELETE on the parent: %w", path, driver.ErrUnavailable, err)
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
		return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end, and making the queue again with its ACL needs ADMIN on it; "+
			"a user with ADMIN can use the lock once, or an operator can remove the node and make it again", path, fs.ErrPermission)
	}
	_, err = s.conn.Multi(&zk.DeleteRequest{Path: path, Version: stat.Version}, &zk.CreateRequest{Path: path, Data: data, Acl: acl})
	return err
}
