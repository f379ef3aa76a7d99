package zkdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Every client may create nodes below the ancestors that this driver makes. A
// client could therefore make a queue before the queue's users do, with an ACL
// in its own favour, and take the users' locks away. So with acl=creator and
// acl=digest, an existing queue is used only if no user other than this
// session's may alter it.
//
// The node of a queue may be an ancestor of other queues, and may have been
// made as one. If this session's user made it, the queue belongs to this user:
// the first Create gives the node the ACL of a queue. After that no other user
// can create nodes below it; their existing queues stay.
//
// The ACL can change, and the queue can be replaced, at any time. The driver
// notices both without a request, because the answer to every Create has the
// queue's Czxid and ACL version.

func (s *settings) checksACLs() bool { return s.acl != aclOpen }

// checkQueueACL returns an error if another user may alter the queue. It
// records in info the epoch and the ACL version that it has checked.
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
		// The ACL entry names another user, who has the same name as this
		// session's user but a different password or certificate.
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
		path, fs.ErrPermission, s.acl, zkconn.Printable(other.Scheme), zkconn.Printable(other.ID))
}

// isAncestorACL reports whether the ACL is the one that ancestorACL gives to
// nodes above queues, and names no user but this session's.
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

// otherUser returns an ACL entry by which another user may alter the queue, or
// nil if there is none.
func (s *settings) otherUser(acl []zk.ACL) *zk.ACL {
	ours := make(map[string]int) // number of entries of each scheme that may name this session's user
	for i, a := range acl {
		if a.Perms&^zk.PermRead == 0 {
			continue
		}
		// A second entry of the same scheme must belong to another user, even
		// if its digest looks the same: the server hides digests from clients
		// without ADMIN.
		if ours[a.Scheme]++; !s.mayBeOwnUser(a) || ours[a.Scheme] > 1 {
			return &acl[i]
		}
	}
	return nil
}

// hiddenDigest is what the server shows in place of a password hash.
const hiddenDigest = ":x"

func hidden(a zk.ACL) bool { return a.Scheme == "digest" && strings.HasSuffix(a.ID, hiddenDigest) }

// mayBeOwnUser reports whether an ACL entry may name this session's user. For a
// certificate this is a guess, because only the server knows how it derives a
// user name from a certificate.
func (s *settings) mayBeOwnUser(a zk.ACL) bool {
	switch a.Scheme {
	case "digest":
		return s.login && (a.ID == s.user+hiddenDigest || a.ID == zk.DigestACL(0, s.user, s.password())[0].ID)
	case "x509":
		return s.acl == aclCreator && s.certified()
	}
	return false
}
