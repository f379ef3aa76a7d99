package zkdriver

import (
	"crypto/rand"

	"github.com/go-zookeeper/zk"
)

// A Release is
//
//	multi(set the data of the own node; delete it)
//
// A watch of the node's data reports the write, and reports the deletion for
// every other end of the node. So a client that can write to a contender can
// make it look released, and the waiter behind it would enter beside the holder.
// Therefore only the session that made a contender can write to it: a session
// logs in as the user of the data source name, and also under a secret that it
// has made up, and lets only this second login write to its nodes.
//
// A contender says so in its data, by the last line "#dlock guarded", because a
// node that other clients can write to (made by other software, say) must not be
// believed. Where that line may be forged is decided in believe.go.

// secret is that of a session. The zero one is none: where it is not used.
type secret struct {
	auth func() []byte // as the digest scheme takes it; a function, as nothing can print what it returns
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

// contenderACL lets those read a contender who can use the queue. (To delete it takes a
// permission on the queue.)
func (s *session) contenderACL() []zk.ACL {
	if !s.secret.set() {
		return s.settings.queueACL()
	}
	return append(s.settings.usersACL(zk.PermRead), s.secret.acl...)
}
