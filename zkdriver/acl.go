package zkdriver

import (
	"crypto/rand"

	"github.com/go-zookeeper/zk"
)

// A session releases a lock by the transaction
//
//	multi(set the data of its own node; delete that node)
//
// The watch of the next waiter reports the write; if the node is removed in any
// other way, the watch reports a deletion instead. A client that can write to
// another session's contender could therefore make it look released, and the
// next waiter would hold the lock at the same time as the holder. So only the
// session that made a contender may write to it. A session logs in as the user
// of the data source name and, in addition, under a generated secret. Only this
// second login may write to the session's nodes.
//
// The last line of a contender's data, "#dlock guarded", marks a contender that
// is protected in this way. A node without it may be writable by other clients,
// for example if other software made it, so a write to it proves no release.
// writetrust.go decides when the line itself can be trusted.

// secret is a random digest login that only one session knows. It is zero if
// the session has none.
type secret struct {
	auth func() []byte // "user:password"; a function, so that printing a secret shows no password
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

func (x secret) set() bool { return x.auth != nil }

// keepsSecret reports whether each session gets a generated login of its own.
// With acl=creator and a certificate it gets none, because the server would add
// that login to the ACL of every new queue, and other sessions would refuse
// such a queue as another user's.
func (s *settings) keepsSecret() bool {
	return !s.listOnly && !(s.acl == aclCreator && s.certified())
}

func (s *settings) certified() bool { return s.files.Cert != "" || s.tlsConfig != nil }

func (s *settings) logins(x secret) [][]byte {
	var all [][]byte
	if s.login {
		all = append(all, []byte(s.user+":"+s.password()))
	}
	if x.set() {
		all = append(all, x.auth())
	}
	return all
}

// contenderACL returns the ACL for contenders. Users of the queue may read a
// contender, but only its session may write to it. They can still delete it,
// because ZooKeeper checks DELETE on the parent node.
func (s *settings) contenderACL(x secret) []zk.ACL {
	if !x.set() {
		return s.queueACL()
	}
	return append(s.usersACL(zk.PermRead), x.acl...)
}

func (s *settings) queueACL() []zk.ACL { return s.usersACL(zk.PermAll) }

func (s *settings) usersACL(perms int32) []zk.ACL {
	switch {
	case s.acl == aclCreator && s.certified():
		return zk.AuthACL(perms) // the server replaces this entry by one for each identity of the client
	case s.acl != aclOpen:
		return zk.DigestACL(perms, s.user, s.password())
	}
	return zk.WorldACL(perms)
}

// ancestorACL returns the ACL for nodes above a queue. Users share those nodes,
// so every client may read them and create nodes below them.
func (s *settings) ancestorACL() []zk.ACL {
	if s.acl == aclOpen {
		return s.queueACL()
	}
	return append(zk.WorldACL(zk.PermRead|zk.PermCreate), s.queueACL()...)
}
