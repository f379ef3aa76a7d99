package zkdriver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// A session releases a lock by the transaction
//
//	multi(set the data of its own node; delete that node)
//
// The write tells the watching waiter that the node was released rather than
// removed. A client that could write to another session's node could fake a
// release, and the lock would then have two holders. So each session has a
// generated login, and only that login may write to the session's nodes.
//
// The last line of a contender's data, "#dlock guarded", marks a node that is
// protected in this way. A write to any other node proves no release.
// trustsWrite decides when the line itself can be trusted.

// secret is a random digest login of one session. The zero value means none.
type secret struct {
	auth func() []byte // "user:password"; a function hides it from %v
	acl  []zk.ACL
}

const secretUser = "dlock-session"

func (s *settings) newSecret() secret {
	if !s.keepsSecret() {
		return secret{}
	}
	password := rand.Text()
	return secret{
		auth: func() []byte { return []byte(secretUser + ":" + password) },
		acl:  zk.DigestACL(zk.PermAll, secretUser, password),
	}
}

func (x secret) exists() bool { return x.auth != nil }

// keepsSecret is false with acl=creator and a certificate: the server would put
// the secret into new queues' ACLs, and other sessions would refuse those
// queues.
func (s *settings) keepsSecret() bool {
	return !s.listOnly && !(s.aclMode == aclCreator && s.certified())
}

func (s *settings) certified() bool { return s.files.Cert != "" || s.tlsConfig != nil }

func (s *settings) logins(x secret) [][]byte {
	var all [][]byte
	if s.login {
		all = append(all, []byte(s.user+":"+s.password()))
	}
	if x.exists() {
		all = append(all, x.auth())
	}
	return all
}

// contenderACL does not stop the queue's users from deleting: ZooKeeper checks
// DELETE on the parent.
func (s *settings) contenderACL(x secret) []zk.ACL {
	if !x.exists() {
		return s.queueACL()
	}
	return append(s.usersACL(zk.PermRead), x.acl...)
}

func (s *settings) queueACL() []zk.ACL { return s.usersACL(zk.PermAll) }

func (s *settings) usersACL(perms int32) []zk.ACL {
	switch {
	case s.aclMode == aclCreator && s.certified():
		return zk.AuthACL(perms) // the server fills in the client's identities
	case s.aclMode != aclOpen:
		return zk.DigestACL(perms, s.user, s.password())
	}
	return zk.WorldACL(perms)
}

// ancestorACL lets every client read ancestors and create nodes below them.
func (s *settings) ancestorACL() []zk.ACL {
	if s.aclMode == aclOpen {
		return s.queueACL()
	}
	return append(zk.WorldACL(zk.PermRead|zk.PermCreate), s.queueACL()...)
}

// With acl=creator and acl=digest, an existing queue is used only if no other
// user may alter it. Every client may create nodes below a queue's ancestors,
// so another user may have created the queue first, with an ACL that lets that
// user remove nodes.
//
// A queue's node may have been created as an ancestor of other queues. If this
// session's user created it, the first Create gives it the ACL of a queue.
//
// The ACL may change, or the queue may be recreated, after the check. Create
// notices this in the server's answer, which contains the queue's Czxid and ACL
// version.

func (s *settings) checksACLs() bool { return s.aclMode != aclOpen }

// checkQueueACL returns an error if another user may alter the queue. Otherwise
// it stores the queue's epoch and ACL version in *info.
func (s *session) checkQueueACL(path string, info *queueInfo) error {
	for range 4 {
		acl, stat, err := s.conn.GetACL(path)
		if err != nil {
			return err
		}
		other := s.settings.otherUser(acl)
		if other == nil {
			info.epoch, info.aclVersion = stat.Czxid, stat.Aversion
			return nil
		}
		if !s.settings.isAncestorACL(acl) {
			return s.settings.foreignQueue(path, other)
		}
		err = s.conn.SetACL(path, s.settings.queueACL(), stat.Aversion)
		switch {
		// The entry that looked like this session's user has another password or
		// certificate.
		case errors.Is(err, zk.ErrNoAuth):
			return s.settings.foreignQueue(path, other)
		case err != nil && !errors.Is(err, zk.ErrBadVersion):
			return err
		}
	}
	return fmt.Errorf("zkdriver: %s: %w: its ACL keeps changing", path, driver.ErrUnavailable)
}

func (s *settings) foreignQueue(path string, other *zk.ACL) error {
	return fmt.Errorf("zkdriver: %s: %w: with acl=%v no other user may alter a queue, but its ACL gives permissions to %s %s. "+
		"Another user has made the node, for a lock or for locks below it, or every client may use it: "+
		"use another name, have the node removed or its ACL set (setAcl), or use acl=open and manage the ACLs yourself",
		path, fs.ErrPermission, s.aclMode, zkconn.Printable(other.Scheme), zkconn.Printable(other.ID))
}

// isAncestorACL reports whether the ACL is ancestorACL's, and names no user but
// this session's.
func (s *settings) isAncestorACL(acl []zk.ACL) bool {
	var ours []zk.ACL
	for _, a := range acl {
		switch {
		case a.Scheme == "world" && a.Perms == zk.PermRead|zk.PermCreate:
		case a.Perms == zk.PermAll:
			ours = append(ours, a)
		default:
			return false
		}
	}
	return len(ours) > 0 && s.otherUser(ours) == nil
}

// otherUser returns an entry that lets another user alter the queue, or nil.
func (s *settings) otherUser(acl []zk.ACL) *zk.ACL {
	ours := make(map[string]int) // by scheme: entries that may be this user's
	for i, a := range acl {
		if a.Perms&^zk.PermRead == 0 {
			continue
		}
		// Several entries may look like this user's, because digests are hidden. At
		// most one is.
		if ours[a.Scheme]++; !s.mayBeOwnUser(a) || ours[a.Scheme] > 1 {
			return &acl[i]
		}
	}
	return nil
}

// hiddenDigest is what the server shows in place of a password hash.
const hiddenDigest = ":x"

func hidden(a zk.ACL) bool { return a.Scheme == "digest" && strings.HasSuffix(a.ID, hiddenDigest) }

// mayBeOwnUser guesses for certificates, because only the server knows their
// user names.
func (s *settings) mayBeOwnUser(a zk.ACL) bool {
	switch a.Scheme {
	case "digest":
		return s.login && (a.ID == s.user+hiddenDigest || a.ID == zk.DigestACL(0, s.user, s.password())[0].ID)
	case "x509":
		return s.aclMode == aclCreator && s.certified()
	}
	return false
}

// A write to a contender's node is a release only if no other session can write
// to the node. The node's trailer claims this, but any client that may create
// nodes in the queue can forge the trailer. So a session trusts a write only
//
//   - if the session has a secret itself (with handover=list it has none);
//   - and if the node is its own, or if every client that may create nodes in
//     the queue may also delete nodes in it. Such a client could remove the
//     holder's node anyway, so it gains nothing by a forgery.
//
// The ACL must be the one with which the queue was created, because a changed
// ACL does not show which clients could create the existing nodes.
//
// The ACL is read once, when a session first has to wait in a queue. Answers to
// Create and List show a later change. A waiter cannot miss a change made
// before its predecessor was created, because it has listed the queue since.

// trustsWrite reports whether a write to the node proves a release.
func (s *session) trustsWrite(queue string, n *storedNode) bool {
	switch {
	case !s.secret.exists() || !n.trailer.guarded:
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
// Entries that look the same may name different users, because digests are
// hidden.
func creatorsMayDelete(acl []zk.ACL) bool {
	worldDeletes := slices.ContainsFunc(acl, func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms&zk.PermDelete != 0 })
	return worldDeletes || !slices.ContainsFunc(acl, func(a zk.ACL) bool {
		return a.Perms&zk.PermCreate != 0 && a.Perms&zk.PermDelete == 0
	})
}
