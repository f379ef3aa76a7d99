package zkdriver

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Every client may add to the ancestors that this driver makes, so a client can
// make a queue before its users do, with an ACL that lets that client in: it
// could take their locks away. So with acl=creator and acl=digest a queue that
// is there already is used only if no other user than that of this session may
// alter it.
//
// The node of a queue may be an ancestor of other queues, and may have been
// made as one. If this session's user has made it, the queue is this user's:
// the first Create closes the node to all others by giving it the ACL of a
// queue. Queues that other users have made below it stay; further ones they
// cannot make.
//
// An ACL may change, and a queue may be exchanged for another one, at any time.
// The answer to every Create holds the queue's Czxid and the version of its
// ACL, so that both are noticed without a request.

// checksACLs tells whether the ACLs of queues are looked at.
func (s *settings) checksACLs() bool { return s.acl != aclOpen }

// checkQueueACL looks at the ACL of a queue and takes down in w what it has looked at.
func (s *session) checkQueueACL(path string, w *queueInfo) error {
	for range 4 {
		acl, stat, err := s.conn.GetACL(path)
		if err != nil {
			return err
		}
		other := s.settings.otherUser(acl)
		if other == nil {
			w.epoch, w.aclVersion = stat.Czxid, stat.Aversion
			return nil
		}
		if !s.settings.isAncestorACL(acl) {
			return s.settings.foreignQueue(path, other)
		}
		err = s.conn.SetACL(path, s.settings.queueACL(), stat.Aversion)
		switch {
		case errors.Is(err, zk.ErrNoAuth): // a user of the same name, or another certificate's
			return s.settings.foreignQueue(path, other)
		case err != nil && !errors.Is(err, zk.ErrBadVersion):
			return err
		}
	}
	return fmt.Errorf("zkdriver: %s: %w: its ACL keeps changing", path, driver.ErrUnavailable)
}

func (s *settings) foreignQueue(path string, other *zk.ACL) error {
	return fmt.Errorf("zkdriver: %s: %w: with acl=%v no other user may alter a queue, but its ACL lets in %s %s. "+
		"Another user has made the node, for a lock or for locks below it, or every client may use it: "+
		"take another name, or have the node removed or its ACL set (setAcl), or use acl=open where others see to the ACLs",
		path, fs.ErrPermission, s.acl, zkconn.Printable(other.Scheme), zkconn.Printable(other.ID))
}

// isAncestorACL reports whether the ACL is the one that this session's user gives to
// ancestors.
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

// otherUser returns an entry by which another user may alter the queue, or nil.
func (s *settings) otherUser(acl []zk.ACL) *zk.ACL {
	ours := make(map[string]int) // by scheme
	for i, a := range acl {
		if a.Perms&^zk.PermRead == 0 {
			continue
		}
		// A second one is another user's: where it takes more than the given
		// permissions to see them, the server hides the digests.
		if ours[a.Scheme]++; !s.mayBeOwnUser(a) || ours[a.Scheme] > 1 {
			return &acl[i]
		}
	}
	return nil
}

// hiddenDigest is what a server shows in place of a digest's hash.
const hiddenDigest = ":x"

// mayBeOwnUser reports whether an entry may mean this session's user. It cannot know
// under which name the server knows a certificate.
func (s *settings) mayBeOwnUser(a zk.ACL) bool {
	switch a.Scheme {
	case "digest":
		return s.login && (a.ID == s.user+hiddenDigest || a.ID == zk.DigestACL(0, s.user, s.password())[0].ID)
	case "x509":
		return s.acl == aclCreator && (s.tlsCert != "" || s.tlsConfig != nil)
	}
	return false
}

func (m aclMode) String() string { return [...]string{"open", "creator", "digest"}[m] }
