package zktest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
)

// Shared returns the server shared by all tests of a binary, and starts it on
// the first call. Tests must use separate paths (see [Server.Chroot]), must not
// stop it, and must not read its counters while other tests run.
func Shared(t testing.TB) *Server {
	t.Helper()
	return newServer(t, servers.Shared(t, func() (*process, error) { return newProcess(newSettings(nil)) }))
}

// Main runs the tests and stops the shared server. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(zktest.Main(m)) }
func Main(m *testing.M) int { return servers.Main(m) }

// Chroot creates a unique path, such as /t17. It is removed with everything
// below it when the test ends.
func (s *Server) Chroot(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	s.chroots++
	root := fmt.Sprintf("/t%d", s.chroots)
	s.mu.Unlock()

	s.admin(t, func(conn *zk.Conn) error {
		_, err := conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		if errors.Is(err, zk.ErrNodeExists) { // created by an earlier attempt whose reply was lost
			return nil
		}
		return err
	})
	t.Cleanup(func() {
		s.admin(t, func(conn *zk.Conn) error { return removeBusyTree(conn, root) })
	})
	return root
}

// removeBusyTree removes a tree. It retries if a client adds nodes meanwhile.
func removeBusyTree(conn *zk.Conn, root string) (err error) {
	for range 100 {
		if err = removeTree(conn, root); !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
	}
	return err
}
