package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"testing"

	"github.com/go-zookeeper/zk"
)

// superuser is the superuser of every server. It lists and removes paths
// whatever access control a test has set.
const superuser = "super:zktest"

func superuserFlag() string {
	sum := sha1.Sum([]byte(superuser))
	return "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:" + base64.StdEncoding.EncodeToString(sum[:])
}

// admin calls the function use with a client of the superuser, and closes the
// client. A client that stayed open would send pings, and [Server.Requests]
// would count them.
func (s *Server) admin(t testing.TB, use func(*zk.Conn) error) {
	t.Helper()
	conn, end, err := Connect(rawTimeout, s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := conn.AddAuth("digest", []byte(superuser)); err != nil {
		t.Fatal(err)
	}
	if err := use(conn); err != nil {
		t.Fatal(err)
	}
}
