package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
)

// superuser is the superuser of every server, which lists and removes paths
// whatever access control a test has set.
const superuser = "super:zktest"

func superuserFlag() string {
	sum := sha1.Sum([]byte(superuser))
	return "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:" + base64.StdEncoding.EncodeToString(sum[:])
}

// admin calls use with a client of the superuser, and closes the client,
// because [Server.Requests] would count the pings of an open one. The
// connection may break on a busy machine. Then admin calls use again, which
// must not mind.
func (s *Server) admin(t testing.TB, use func(*zk.Conn) error) {
	t.Helper()
	conn, end, err := Connect(rawTimeout, s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for range 10 {
		if err = conn.AddAuth("digest", []byte(superuser)); err == nil {
			err = use(conn)
		}
		if !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrSessionExpired) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
