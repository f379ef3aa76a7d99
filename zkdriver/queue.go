package zkdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// prepareQueue reads or creates the queue's node when the session first uses
// the queue.
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

// makeQueue makes missing ancestors, too, but no successor: see moveOn.
func (s *session) makeQueue(queue string) error {
	if before, ok := predecessorOf(queue); ok {
		s.queues.moved.Delete(before)
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

// makeAncestors creates nodes that are never removed: other clients may rely on
// them.
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

// queueCache remembers how to create nodes, and whether to trust writes.
type queueCache struct {
	mu     sync.Mutex
	known  map[string]queueInfo
	trusts map[string]writeTrust

	moved        sync.Map    // by used-up queue: its successor's epoch
	noContainers atomic.Bool // whether the server is too old for containers
}

const maxKnown = 4096

type queueInfo struct {
	mode       createMode
	epoch      int64 // Czxid, if draining or ACLs are checked
	aclVersion int32 // version of the ACL that checkQueueACL accepted

	// shared predicts that a contender finds others but need not wait.
	shared bool
}

type createMode int

const (
	unknown createMode = iota

	// withWrite adds a write to the queue's node, whose answer has all that
	// Create returns.
	withWrite

	// withoutWrite is for queues whose node has others' data or refuses this
	// user's writes.
	withoutWrite

	// draining creates no nodes until the queue is empty and can start over.
	draining
)

func (q *queueCache) get(queue string) queueInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.known[queue]
}

func (q *queueCache) set(queue string, info queueInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, there := q.known[queue]; !there && len(q.known) >= maxKnown {
		for other := range q.known { // evict any entry
			delete(q.known, other)
			break
		}
	}
	q.known[queue] = info
}

func (q *queueCache) noteShared(queue string, shared bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if info, known := q.known[queue]; known {
		info.shared = shared
		q.known[queue] = info
	}
}

// current returns the queue that has the contenders: this one or its successor.
func (q *queueCache) current(queue string) (in string, epoch int64) {
	if epoch, moved := q.moved.Load(queue); moved {
		return successorOf(queue), epoch.(int64)
	}
	return queue, 0
}

func (q *queueCache) drop(queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.known, queue)
}

// writeTrust says whether writes are trusted, for one epoch and ACL version:
// see trustsWrite.
type writeTrust struct {
	epoch      int64
	aclVersion int32
	unread     bool // whether the ACL has yet to be read
	trusted    bool
}

func (t writeTrust) olderThan(epoch int64, aclVersion int32) bool {
	return t.epoch < epoch || t.epoch == epoch && t.aclVersion < aclVersion
}

// trust returns t.unread if the caller must read the ACL and call setTrust.
func (q *queueCache) trust(queue string) writeTrust {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, known := q.trusts[queue]
	if known {
		return t
	}
	for other, t := range q.trusts {
		if len(q.trusts) < maxKnown {
			break
		}
		if !t.unread {
			delete(q.trusts, other)
		}
	}
	t = writeTrust{unread: true}
	q.trusts[queue] = t // from now on, aclSeen notes a changed ACL
	return t
}

func (q *queueCache) setTrust(queue string, t writeTrust) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !t.olderThan(q.trusts[queue].epoch, q.trusts[queue].aclVersion) {
		q.trusts[queue] = t
	}
}

// aclSeen makes trustsWrite read the ACL again if the answer is newer.
func (q *queueCache) aclSeen(queue string, epoch int64, aclVersion int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t, known := q.trusts[queue]; known && t.olderThan(epoch, aclVersion) {
		q.trusts[queue] = writeTrust{epoch: epoch, aclVersion: aclVersion, unread: true}
	}
}

// The server counts a queue's sequences in the queue's node, so they start over
// only when that node is removed. Queues below the queue are children of the
// node, and prevent its removal. The contenders then move to another child, the
// successor. No queue is ever made below a successor, so an empty successor can
// always be removed.
//
// All sessions must agree on where the contenders are. A session uses a
// successor only after it has seen that the queue's own node has no sequences
// left and no contender. This stays true as long as that node exists, because a
// Create that gets a sequence past the limit removes its contender again. The
// node exists at least as long as its child, the successor. So a session need
// not look again until the answers to Create and List show a new epoch of the
// successor.

var errMoved = errors.New("zkdriver: the queue goes on in its successor")

// errNoSuccessor means that the caller must check the queue's own node again.
var errNoSuccessor = fmt.Errorf("zkdriver: %w: the queue was removed while it was used", driver.ErrUnavailable)

// usedUp computes the number of children ever created: a Stat's Cversion is
// twice that number, minus the number that exist, in 32 bits.
func (s *session) usedUp(queue *zk.Stat) bool {
	return int64(uint32(queue.Cversion+queue.NumChildren)/2) >= s.settings.sequenceLimit
}

func hasContender(children []string) bool {
	return slices.ContainsFunc(children, endsInSequence)
}

// follow reports whether the contenders have moved to the successor, and caches
// its epoch.
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
	// If the queue was recreated meanwhile, the successor must not be used.
	_, again, err := s.conn.Children(s.settings.queuePath(queue))
	if errors.Is(err, zk.ErrNoNode) || err == nil && again.Czxid != stat.Czxid {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.queues.moved.Store(queue, next.Czxid)
	return true, nil
}

// moveOn creates the successor. The queue must have no contenders.
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

// rollOver restarts a queue's sequences, or returns errMoved if the contenders
// move to the successor.
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

// startOver keeps data and ACL that the next Create would not restore.
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
