package zkdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// queueCache remembers how nodes are made in each queue. It is a cache: what falls out costs one
// request.
type queueCache struct {
	mu     sync.Mutex
	known  map[string]queueInfo
	trusts map[string]writeTrust

	noContainers atomic.Bool // the server is older than 3.5.3
}

// maxKnown bounds the cache, for sessions that use many queues.
const maxKnown = 4096

// queueInfo is a manner and what it holds for: for draining, the incarnation of the queue; where the
// session is guarded, also the version of its ACL.
type queueInfo struct {
	mode       createMode
	epoch      int64
	aclVersion int32
}

// createMode is how nodes are made in a queue.
type createMode int

const (
	unknown createMode = iota
	// stamped: with a write of empty data to the queue's node, whose Stat tells everything.
	withWrite
	// plain: without, because the queue's node holds data of others or may not be written.
	withoutWrite
	// draining: not at all, until the queue is empty: its sequences have come to their end.
	draining
)

func (q *queueCache) get(queue string) queueInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.known[queue]
}

func (q *queueCache) set(queue string, w queueInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known == nil {
		q.known = make(map[string]queueInfo)
	}
	if _, there := q.known[queue]; !there && len(q.known) >= maxKnown {
		for other := range q.known { // any one
			delete(q.known, other)
			break
		}
	}
	q.known[queue] = w
}

func (q *queueCache) drop(queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.known, queue)
}

// prepareQueue looks at a queue that is not known yet, and makes it where it is missing.
func (s *session) prepareQueue(queue string) (queueInfo, error) {
	if w := s.queues.get(queue); w.mode != unknown {
		return w, nil
	}
	path := s.settings.queuePath(queue)
	data, _, err := s.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		if err := s.makeQueue(queue); err != nil {
			return queueInfo{}, err
		}
		data, _, err = s.conn.Get(path)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return queueInfo{}, s.vanished(queue)
	}
	if err != nil {
		return queueInfo{}, explain(err, "look at", path, "READ on it")
	}
	w := queueInfo{mode: withWrite}
	if len(data) > 0 {
		w.mode = withoutWrite
	}
	if s.settings.checksACLs() {
		err := s.checkQueueACL(path, &w)
		if errors.Is(err, zk.ErrNoNode) {
			return queueInfo{}, s.vanished(queue)
		}
		if err != nil {
			return queueInfo{}, explain(err, "look at the ACL of", path, "READ on it")
		}
	}
	s.queues.set(queue, w)
	return w, nil
}

func (s *session) vanished(queue string) error {
	s.queues.drop(queue)
	return fmt.Errorf("zkdriver: %s: %w: the queue was removed while it was used", s.settings.queuePath(queue), driver.ErrUnavailable)
}

// makeQueue makes the queue's node, as a container where the server has them, and its
// ancestors. A queue that is there already is fine.
func (s *session) makeQueue(queue string) error {
	path := s.settings.queuePath(queue)
	for range 3 {
		err := s.makeQueueNode(path)
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

func (s *session) makeQueueNode(path string) error {
	if !s.queues.noContainers.Load() {
		err := s.conn.CreateContainer(path, s.settings.queueACL())
		if err == nil || !zkconn.Unimplemented(err) {
			return err
		}
		s.queues.noContainers.Store(true)
	}
	_, err := s.conn.Create(path, nil, zk.FlagPersistent, s.settings.queueACL())
	return err
}

// makeAncestors makes what is missing above path: ordinary nodes, which stay, because others
// may build upon them.
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

// queueACL is for queues, and for contenders that are not guarded.
func (s *settings) queueACL() []zk.ACL { return s.usersACL(zk.PermAll) }

// usersACL gives those a permission who may use the queues that are made here.
func (s *settings) usersACL(perms int32) []zk.ACL {
	switch {
	case s.acl == aclCreator && s.certified():
		return zk.AuthACL(perms) // under all the names by which the server knows this client
	case s.acl != aclOpen:
		return zk.DigestACL(perms, s.user, s.password())
	}
	return zk.WorldACL(perms)
}

// ancestorACL lets everybody who may connect read and add, because different users have their
// queues below the same node.
func (s *settings) ancestorACL() []zk.ACL {
	if s.acl == aclOpen {
		return s.queueACL()
	}
	return append(zk.WorldACL(zk.PermRead|zk.PermCreate), s.queueACL()...)
}

// rollOver removes a queue whose sequences have come to their end, once it is
// empty, and makes it again. Tokens go on rising: they are the store's own
// count. Until then the error matches driver.ErrUnavailable.
func (s *session) rollOver(queue string, epoch int64) error {
	path := s.settings.queuePath(queue)
	names, stat, err := s.conn.Children(path)
	switch {
	case err == nil && stat.Czxid != epoch: // another client has done it
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
		return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end, and it takes CREATE and DELETE on the parent to start over: %w", path, driver.ErrUnavailable, err)
	}
	return explain(err, "start over the sequences of", path, "CREATE and DELETE on its parent")
}

// startOver removes the node of an empty queue. A node as this driver makes it
// is made again by the next Create. Any other one is an operator's: in the same
// transaction it is made again with its ACL and its data, as an ordinary node,
// because a Stat does not tell a container from one.
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
		return s.conn.Delete(path, stat.Version) // which fails if it is not empty any more
	case slices.ContainsFunc(acl, hidden):
		return fmt.Errorf("zkdriver: %s: %w: the sequences have come to their end, and it takes ADMIN on the queue to read its ACL and make it again with it; "+
			"a user with ADMIN can use the lock once, or an operator can remove the node and make it again", path, fs.ErrPermission)
	}
	_, err = s.conn.Multi(&zk.DeleteRequest{Path: path, Version: stat.Version}, &zk.CreateRequest{Path: path, Data: data, Acl: acl})
	return err
}

// hidden reports whether the server has hidden the digest of an entry, as it
// does for clients without ADMIN.
func hidden(a zk.ACL) bool { return a.Scheme == "digest" && strings.HasSuffix(a.ID, hiddenDigest) }
