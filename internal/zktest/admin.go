package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
)

// superuser is exempt from ACLs, so that tests can list and remove all nodes.
const superuser = "super:zktest"

func superuserFlag() string {
	sum := sha1.Sum([]byte(superuser))
	return "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:" + base64.StdEncoding.EncodeToString(sum[:])
}

// admin passes use a superuser client. It retries if the connection breaks, so
// use must be idempotent.
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
