package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"testing"

	"github.com/go-zookeeper/zk"
)

// The superuser of every server, so that a path can be listed and removed
// whatever access control a test has put on it.
const superuser = "super:zktest"

func superuserFlag() string {
	sum := sha1.Sum([]byte(superuser))
	return "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:" + base64.StdEncoding.EncodeToString(sum[:])
}

// admin uses a client of the superuser for a moment only: one that stayed would
// send pings, and those would be counted by [Server.Requests].
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
