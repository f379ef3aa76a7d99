package zkdriver

import (
	"sync"
	"sync/atomic"
)

// queueCache remembers for each queue how to create nodes, and whether to trust
// writes to them. Dropping an entry costs only the request that reads it again.
type queueCache struct {
	mu     sync.Mutex
	known  map[string]queueInfo
	trusts map[string]writeTrust
	moved  map[string]int64 // epochs of the successors in use, by queue: see rollover.go

	noContainers atomic.Bool // whether the server is older than 3.5.3, which has no containers
}

const maxKnown = 4096

// queueInfo says how to create nodes in a queue.
type queueInfo struct {
	mode       createMode
	epoch      int64 // zero unless the mode is draining or the session checks ACLs
	aclVersion int32 // version of the ACL that was checked; zero if the mode is draining or the session checks no ACLs
}

type createMode int

const (
	unknown createMode = iota

	// withWrite creates each node together with an empty write to the queue's
	// node, whose answer contains all that Create returns.
	withWrite

	// withoutWrite creates nodes without a write to the queue's node, because
	// that node has other clients' data or this user may not write to it.
	withoutWrite

	// draining creates no node until the queue is empty, because its sequence
	// numbers are used up.
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
	if q.known == nil {
		q.known = make(map[string]queueInfo)
	}
	if _, there := q.known[queue]; !there && len(q.known) >= maxKnown {
		for other := range q.known { // evict any entry
			delete(q.known, other)
			break
		}
	}
	q.known[queue] = info
}

// setMoved records that a queue's contenders are now in its successor.
func (q *queueCache) setMoved(queue string, epoch int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.moved == nil {
		q.moved = make(map[string]int64)
	}
	q.moved[queue] = epoch
}

func (q *queueCache) movedBack(queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.moved, queue)
}

// current returns the path that has the queue's contenders: the queue itself or
// its successor.
func (q *queueCache) current(queue string) (in string, epoch int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if epoch, moved := q.moved[queue]; moved {
		return successorOf(queue), epoch
	}
	return queue, 0
}

func (q *queueCache) drop(queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.known, queue)
}

// writeTrust says whether a write to a contender counts as a release (see
// writetrust.go). It is valid for one epoch of the queue and one version of its
// ACL.
type writeTrust struct {
	epoch      int64
	aclVersion int32
	unread     bool // whether the ACL has yet to be read
	trusted    bool
}

func (t writeTrust) olderThan(epoch int64, aclVersion int32) bool {
	return t.epoch < epoch || t.epoch == epoch && t.aclVersion < aclVersion
}

// trust returns whether writes in a queue are trusted. If the result is unread,
// the caller must read the ACL and call setTrust.
func (q *queueCache) trust(queue string) writeTrust {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, known := q.trusts[queue]
	if known {
		return t
	}
	if q.trusts == nil {
		q.trusts = make(map[string]writeTrust)
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
	q.trusts[queue] = t // so that aclSeen can note a change of the ACL before setTrust is called
	return t
}

// setTrust stores t, unless the cache has an entry for a later epoch or ACL
// version.
func (q *queueCache) setTrust(queue string, t writeTrust) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !t.olderThan(q.trusts[queue].epoch, q.trusts[queue].aclVersion) {
		q.trusts[queue] = t
	}
}

// aclSeen is called with the epoch and the ACL version from a server's answer.
// If they are newer than the cached ones, trustsWrite will read the ACL again.
func (q *queueCache) aclSeen(queue string, epoch int64, aclVersion int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t, known := q.trusts[queue]; known && t.olderThan(epoch, aclVersion) {
		q.trusts[queue] = writeTrust{epoch: epoch, aclVersion: aclVersion, unread: true}
	}
}
