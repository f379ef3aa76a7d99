package zkdriver

import (
	"sync"
	"sync/atomic"
)

// queueCache remembers how to create nodes in each queue, and whether to trust
// writes there. An entry may be dropped any time, at the cost of one request.
type queueCache struct {
	mu     sync.Mutex
	known  map[string]queueInfo
	trusts map[string]writeTrust
	moved  map[string]int64 // epochs of the successors in use, by queue: see rollover.go

	noContainers atomic.Bool // whether the server is older than 3.5.3, which has no containers
}

const maxKnown = 4096

// queueInfo says how to create nodes in a queue. The epoch is set only if the
// mode is draining or the session checks ACLs. aclVersion, the version checked,
// is zero if the mode is draining or ACLs are not checked.
type queueInfo struct {
	mode       createMode
	epoch      int64
	aclVersion int32
}

type createMode int

const (
	unknown createMode = iota

	// Create each node together with an empty write to the queue's node.
	// The Stat in the answer has everything that Create returns.
	withWrite

	// Create nodes without writing to the queue's node, because it has data
	// of other clients or this user may not write to it.
	withoutWrite

	// Create no node until the queue is empty, because its sequence numbers
	// are used up.
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

// current returns the queue that has the contenders, which is the queue itself
// or its successor.
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
	unread     bool // whether the ACL has not been read yet
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
	q.trusts[queue] = t // lets aclSeen record later states until setTrust is called
	return t
}

// setTrust stores t unless a later state of the queue is known.
func (q *queueCache) setTrust(queue string, t writeTrust) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !t.olderThan(q.trusts[queue].epoch, q.trusts[queue].aclVersion) {
		q.trusts[queue] = t
	}
}

// aclSeen drops the recorded trust if the queue or its ACL has changed, so that
// trustsWrite reads the ACL again.
func (q *queueCache) aclSeen(queue string, epoch int64, aclVersion int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t, known := q.trusts[queue]; known && t.olderThan(epoch, aclVersion) {
		q.trusts[queue] = writeTrust{epoch: epoch, aclVersion: aclVersion, unread: true}
	}
}
