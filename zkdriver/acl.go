package zkdriver

import (
	"crypto/rand"

	"github.com/go-zookeeper/zk"
)

// The release of a lock is
//
//	multi(set the data of the own node; delete it)
//
// A watch of the node's data reports the write. If the node is removed in any
// other way, the watch reports the deletion. So a client that can write to a
// contender can make it look released. The waiter behind that contender would
// then hold the lock at the same time as the holder. Therefore only the session
// that made a contender can write to it. A session logs in as the user of the
// data source name, and also under a secret that it has generated. Only this
// second login may write to the session's nodes.
//
// The last line of a contender's data, "#dlock guarded", says that the
// contender is protected in this way. A node without the line may be writable
// by other clients (if other software made it, say), so a write to it proves no
// release. writetrust.go decides when the line itself can be trusted.

// secret is the second login of a session. The zero value means that the
// session has none.
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

// keepsSecret reports whether sessions have a secret. With acl=creator and a
// certificate they have none. The reason is that the ACL of a queue then names
// all logins of the client that made the queue. A secret would be one of these
// logins. Any other session would then take it for another user who may alter
// the queue, and would refuse the queue: see otherUser.
func (s *settings) keepsSecret() bool {
	return !s.listOnly && !(s.acl == aclCreator && s.certified())
}

// certified reports whether the server may recognise this client by a
// certificate.
func (s *settings) certified() bool { return s.files.Cert != "" || s.tlsConfig != nil }

// logins returns the logins of a session, in the form of zkconn.Config.Logins.
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

// contenderACL is the ACL of contenders. It lets the users of a queue read
// them. (To delete a contender, a user needs a permission on the queue.)
func (s *settings) contenderACL(x secret) []zk.ACL {
	if !x.set() {
		return s.queueACL()
	}
	return append(s.usersACL(zk.PermRead), x.acl...)
}

// queueACL is the ACL of queues. It is also the ACL of contenders if the
// session has no secret.
func (s *settings) queueACL() []zk.ACL { return s.usersACL(zk.PermAll) }

// usersACL returns an ACL that gives perms to the users of the queues that this
// client makes.
func (s *settings) usersACL(perms int32) []zk.ACL {
	switch {
	case s.acl == aclCreator && s.certified():
		return zk.AuthACL(perms) // the server enters all names by which it knows this client
	case s.acl != aclOpen:
		return zk.DigestACL(perms, s.user, s.password())
	}
	return zk.WorldACL(perms)
}

// ancestorACL returns the ACL of the nodes above a queue. This ACL lets every
// client read such a node and create nodes below it, because different users
// have their queues below the same node.
func (s *settings) ancestorACL() []zk.ACL {
	if s.acl == aclOpen {
		return s.queueACL()
	}
	return append(zk.WorldACL(zk.PermRead|zk.PermCreate), s.queueACL()...)
}
