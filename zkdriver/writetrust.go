package zkdriver

import (
	"slices"

	"github.com/go-zookeeper/zk"
)

// A write to a contender's node is believed to be a Release if only the node's
// session can write to it. The node's own data says so, but any client that may
// create nodes in the queue can write that line into a node of its own, and
// then make this node look released while another contender holds the lock. So
// a session believes a write only
//
//   - if the session has a secret itself: with handover=list it never does;
//   - and if the node is its own, or every client that may create nodes in the
//     queue may delete them, too. Such a client can remove a holder's node
//     anyway, so a forgery gains it nothing.
//
// The queue must have been made with that ACL. One that was changed later does
// not tell who could create the nodes that are there.
//
// The ACL is read once, when a session first has to wait in a queue. Every
// answer to a Create and to a List holds the queue's Czxid and the version of
// its ACL, so a change is noticed without a request. A waiter has listed the
// node that it waits for, so the verdict is about the ACL under which that node
// was created.

// writeTrust says whether a write to a node of a queue is believed, as of one
// incarnation of the queue and one version of its ACL.
type writeTrust struct {
	epoch      int64
	aclVersion int32
	unread     bool // the ACL was not read yet
	trusted    bool
}

// olderThan reports whether v is of an earlier state of the queue.
func (v writeTrust) olderThan(epoch int64, aclVersion int32) bool {
	return v.epoch < epoch || v.epoch == epoch && v.aclVersion < aclVersion
}

// trustsWrite reports whether a write to a node that stands in the queue is a
// Release.
func (s *session) trustsWrite(queue string, f *storedNode) bool {
	switch {
	case !s.secret.set() || !f.trailer.guarded:
		return false
	case f.mine:
		return true
	}
	v := s.queues.trust(queue)
	if v.unread {
		acl, stat, err := s.conn.GetACL(s.settings.queuePath(queue))
		if err != nil {
			return false
		}
		v = writeTrust{epoch: stat.Czxid, aclVersion: stat.Aversion, trusted: stat.Aversion == 0 && creatorsMayDelete(acl)}
		s.queues.setTrust(queue, v)
	}
	return v.trusted
}

// creatorsMayDelete reports whether an ACL gives no user CREATE without DELETE.
// It looks at each entry by itself: the server may hide the digests, and then
// two entries that look alike need not be the same user.
func creatorsMayDelete(acl []zk.ACL) bool {
	worldDeletes := slices.ContainsFunc(acl, func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms&zk.PermDelete != 0 })
	return worldDeletes || !slices.ContainsFunc(acl, func(a zk.ACL) bool {
		return a.Perms&zk.PermCreate != 0 && a.Perms&zk.PermDelete == 0
	})
}

// trust returns the verdict on a queue. If it is open, the caller reads the
// ACL and calls judge.
func (q *queueCache) trust(queue string) writeTrust {
	q.mu.Lock()
	defer q.mu.Unlock()
	v, known := q.trusts[queue]
	if known {
		return v
	}
	if q.trusts == nil {
		q.trusts = make(map[string]writeTrust)
	}
	for other, v := range q.trusts {
		if len(q.trusts) < maxKnown {
			break
		}
		if !v.unread {
			delete(q.trusts, other)
		}
	}
	v = writeTrust{unread: true}
	q.trusts[queue] = v // so that saw records what is seen until judge is called
	return v
}

// setTrust keeps a verdict, unless a later state of the queue has been seen.
func (q *queueCache) setTrust(queue string, v writeTrust) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !v.olderThan(q.trusts[queue].epoch, q.trusts[queue].aclVersion) {
		q.trusts[queue] = v
	}
}

// aclSeen opens the verdict on a queue again if the queue, or its ACL, is a later
// one.
func (q *queueCache) aclSeen(queue string, epoch int64, aclVersion int32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if v, known := q.trusts[queue]; known && v.olderThan(epoch, aclVersion) {
		q.trusts[queue] = writeTrust{epoch: epoch, aclVersion: aclVersion, unread: true}
	}
}
