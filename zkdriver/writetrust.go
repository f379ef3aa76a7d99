package zkdriver

import (
	"slices"

	"github.com/go-zookeeper/zk"
)

// A write to a contender's node is a release only if no other session can write
// to the node. The node's trailer says whether that is so, but any client that
// may create nodes in the queue can forge a node with that trailer, and then
// make it look released while another contender holds the lock. So a session
// trusts a write only
//
//   - if the session has a secret itself (with handover=list it has none);
//   - and if the node is its own, or if every client that may create nodes in the
//     queue may also delete nodes in it. Such a client can remove a holder's node
//     anyway, so it gains nothing by a forgery.
//
// The ACL must be the one with which the queue was made. A changed ACL does not
// show which clients could create the nodes that exist.
//
// The ACL is read once, when a session first has to wait in a queue. Every
// answer to a Create and to a List has the queue's Czxid and ACL version, so
// the driver notices a change without a request. A waiter has listed the queue
// with its predecessor in it, so the driver has seen the ACL version under
// which the predecessor was created, or a later one.

// trustsWrite reports whether a write to the node proves that its holder
// released the lock.
func (s *session) trustsWrite(queue string, n *storedNode) bool {
	switch {
	case !s.secret.set() || !n.trailer.guarded:
		return false
	case n.mine:
		return true
	}
	t := s.queues.trust(queue)
	if t.unread {
		acl, stat, err := s.conn.GetACL(s.settings.queuePath(queue))
		if err != nil {
			return false
		}
		t = writeTrust{epoch: stat.Czxid, aclVersion: stat.Aversion, trusted: stat.Aversion == 0 && creatorsMayDelete(acl)}
		s.queues.setTrust(queue, t)
	}
	return t.trusted
}

// creatorsMayDelete reports whether every user with CREATE also has DELETE.
// Permissions of similar entries are not added up, because the server hides
// digests and the entries may belong to different users.
func creatorsMayDelete(acl []zk.ACL) bool {
	worldDeletes := slices.ContainsFunc(acl, func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms&zk.PermDelete != 0 })
	return worldDeletes || !slices.ContainsFunc(acl, func(a zk.ACL) bool {
		return a.Perms&zk.PermCreate != 0 && a.Perms&zk.PermDelete == 0
	})
}
