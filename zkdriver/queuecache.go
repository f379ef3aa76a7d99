package zkdriver

import (
	"sync"
	"sync/atomic"
)

// queueCache remembers how this session creates nodes in each queue, and
// whether it trusts writes there. Dropping an entry costs one more request at
// the next use of the queue.
type queueCache struct {
	mu     sync.Mutex
	known  map[string]queueInfo
	trusts map[string]writeTrust
	moved  map[string]int64 // epochs of the successors in use, by queue: see rollover.go

	noContainers atomic.Bool // whether the server is older than 3.5.3, which has no containers
}

// maxKnown bounds the cache, for sessions that use many queues.
const maxKnown = 4096

// queueInfo says how nodes are created in a queue. The epoch is set only if the
// mode is draining or the session checks ACLs. The aclVersion is the version
// that the session has checked; it is zero if the mode is draining or ACLs are
// not checked.
type queueInfo struct {
	mode       createMode
	epoch      int64
	aclVersion int32
}

// createMode is how nodes are created in a queue.
type createMode int

const (
	unknown createMode = iota

	// A node is created together with a write of empty data to the queue's
	// node. The Stat of that write has everything that Create returns.
	withWrite

	// A node is created without a write, because the queue's node has data of
	// other clients, or must not be written.
	withoutWrite

	// No node is created until the queue is empty, because its sequence numbers
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

// setMoved records that a queue's contenders are in its successor, with that
// epoch.
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

// current returns the queue that has the contenders: the queue itself, or its
// successor with its epoch.
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

// writeTrust says whether a write to a node of a queue is trusted to be a
// release (see writetrust.go), for one epoch of the queue and one version of
// its ACL.
type writeTrust struct {
	epoch      int64
	aclVersion int32
	unread     bool // whether the ACL has not been read yet
	trusted    bool
}

// olderThan reports whether t describes an earlier state of the queue.
func (t writeTrust) olderThan(epoch int64, aclVersion int32) bool {
	return t.epoch < epoch || t.epoch == epoch && t.aclVersion < aclVersion
}

// trust returns whether writes in a queue are trusted. If the result is unread,
// the caller has to read the ACL and call setTrust.
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

// setTrust stores t unless a later state of the queue has been seen.
func (q *queueCache) setTrust(queue string, t writeTrust) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !t.olderThan(q.trusts[queue].epoch, q.trusts[queue].aclVersion) {
		q.trusts[queue] = t
	}
}

// aclSeen is called with the epoch and ACL version that an answer shows for a
// queue. If they are new, the recorded trust is dropped, so that the next
// trustsWrite reads the ACL again.
func (q *queueCache) aclSeen(queue string, epoch int64, aclVersion int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t, known := q.trusts[queue]; known && t.olderThan(epoch, aclVersion) {
		q.trusts[queue] = writeTrust{epoch: epoch, aclVersion: aclVersion, unread: true}
	}
}
