package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
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
// would count them. On a busy machine the connection of the client may break. So if
// use fails for this reason, admin calls it again, and use must not mind that.
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
