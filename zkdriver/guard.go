package zkdriver

import (
	"fmt"
	"io/fs"

	"github.com/go-zookeeper/zk"
)

// Everybody may add to the ancestors that this driver makes, so somebody else can make a queue
// before its users do, with an ACL that lets himself in: he could take their locks away. So with
// acl=creator and acl=digest a queue that is there already is used only if nobody but the user of
// this session may alter it.
//
// An ACL may change, and a queue may be exchanged for another one, at any time. The answer to
// every Create holds the queue's Czxid and the version of its ACL, so that both are noticed
// without a request.

// guarded tells whether the ACLs of queues are looked at.
func (s *settings) guarded() bool { return s.acl != aclOpen }

// guard looks at the ACL of a queue and takes down in w what it has looked at.
func (s *session) guard(path string, w *way) error {
	acl, stat, err := s.getACL(path)
	if err != nil {
		return err
	}
	if other := s.settings.stranger(acl); other != nil {
		return fmt.Errorf("zkdriver: %s: %w: with acl=%v nobody else may alter a queue, but its ACL lets in %s %s: "+
			"somebody has made it with an ACL of his own; remove it, or set its ACL (setAcl), or use acl=open where others see to the ACLs",
			path, fs.ErrPermission, s.settings.acl, printable(other.Scheme), printable(other.ID))
	}
	w.epoch, w.aclVersion = stat.Czxid, stat.Aversion
	return nil
}

// stranger returns an entry by which somebody else may alter the queue, or nil.
func (s *settings) stranger(acl []zk.ACL) *zk.ACL {
	ours := make(map[string]int) // by scheme
	for i, a := range acl {
		if a.Perms&^zk.PermRead == 0 {
			continue
		}
		// A second one is somebody else's: where it takes more than the given permissions to see
		// them, the server hides the digests.
		if ours[a.Scheme]++; !s.isUs(a) || ours[a.Scheme] > 1 {
			return &acl[i]
		}
	}
	return nil
}

// isUs tells whether an entry may mean this session's user. It cannot know under which name the
// server knows a certificate.
func (s *settings) isUs(a zk.ACL) bool {
	switch a.Scheme {
	case "digest":
		const hidden = ":x"
		return s.login && (a.ID == s.user+hidden || a.ID == zk.DigestACL(0, s.user, s.password())[0].ID)
	case "x509":
		return s.acl == aclCreator && (s.tlsCert != "" || s.tlsConfig != nil)
	}
	return false
}

func (m aclMode) String() string { return [...]string{"open", "creator", "digest"}[m] }
