package zktest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
)

func TestRequestsCountsWhatClientsSend(t *testing.T) {
	s := Start(t)
	require.Zero(t, s.Requests(t), "the four-letter words that Start has sent do not count")
	require.Zero(t, s.Requests(t), "the four-letter word that Requests has sent does not count")
	s.FourLetter("ruok")
	s.Mntr()
	require.Zero(t, s.Requests(t))

	conn := Dial(t, time.Minute, s.Addr())
	require.EqualValues(t, 1, s.Requests(t), "a connection")

	acl := zk.WorldACL(zk.PermAll)
	_, err := conn.Create("/a", nil, 0, acl)
	require.NoError(t, err)
	_, _, err = conn.Children("/a")
	require.NoError(t, err)
	_, err = conn.Multi(&zk.SetDataRequest{Path: "/a"}, &zk.DeleteRequest{Path: "/a", Version: -1})
	require.NoError(t, err)
	_, _, err = conn.Get("/a")
	require.ErrorIs(t, err, zk.ErrNoNode)
	require.EqualValues(t, 1+4, s.Requests(t), "a Multi counts once, and a refused request counts as well")

	conn.Close()
	require.EqualValues(t, 1+4+1, s.Requests(t), "a close")

	s.Restart()
	require.Zero(t, s.Requests(t))
}

func TestRequestsCountsPings(t *testing.T) {
	s := Start(t)
	p := NewProxy(t, s.Addr())
	Dial(t, time.Second, p.Addr())
	eventually(t, func() bool { return p.Frames(OpPing) >= 2 })
	require.Zero(t, p.Requests())
	eventually(t, func() bool { // the proxy counts a ping before the server receives it
		n, err := s.requests()
		return err == nil && n >= 1+2
	})
}

func TestRequestsCountsTheSameOverTLSFactory(t *testing.T) {
	certs := testenv.NewCerts(t)
	s := Start(t, WithTLS(certs, certs.Server, NoClientCert))
	require.Zero(t, s.Requests(t))
	Dial(t, time.Minute, s.Addr())
	require.EqualValues(t, 1, s.Requests(t))
}

func TestWatchesAndEphemeralsCountWhatIsHeld(t *testing.T) {
	s := Start(t)
	conn := s.Raw(t)
	require.Zero(t, s.Watches())
	require.Zero(t, s.Ephemerals())
	require.NoError(t, create(conn, "/a"))
	_, _, gone, err := conn.ChildrenW("/a")
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Watches())
	require.EqualValues(t, 1, s.Ephemerals())
	require.NoError(t, conn.Delete("/a", -1))
	<-gone
	require.Zero(t, s.Watches())
	require.Zero(t, s.Ephemerals())
}

func TestChrootsAreDistinctAndRemovedWithTheirTests(t *testing.T) {
	s := Shared(t)
	var roots []string
	t.Run("test", func(t *testing.T) {
		roots = []string{s.Chroot(t), s.Chroot(t)}
		require.NotEqual(t, roots[0], roots[1])
		conn := s.Raw(t)
		for _, path := range []string{"/b", "/a", "/a/c"} {
			_, err := conn.Create(roots[0]+path, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		require.Equal(t, []string{roots[0] + "/a", roots[0] + "/a/c", roots[0] + "/b"}, s.Tree(t, roots[0]))
		require.Empty(t, s.Tree(t, roots[1]))
		require.Empty(t, s.Tree(t, "/none"))
	})
	for _, root := range roots {
		found, _, err := s.Raw(t).Exists(root)
		require.NoError(t, err)
		require.False(t, found)
	}
}

func TestChrootIsRemovedWhateverItsAccessControl(t *testing.T) {
	s := Shared(t)
	var root string
	t.Run("test", func(t *testing.T) {
		root = s.Chroot(t)
		conn := s.Raw(t)
		noAccess := zk.DigestACL(zk.PermAdmin, "another", "user")
		_, err := conn.Create(root+"/a", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, err = conn.Create(root+"/a/b", nil, 0, noAccess)
		require.NoError(t, err)
		_, err = conn.SetACL(root+"/a", noAccess, -1)
		require.NoError(t, err)
		require.Equal(t, []string{root + "/a", root + "/a/b"}, s.Tree(t, root))
	})
	found, _, err := s.Raw(t).Exists(root)
	require.NoError(t, err)
	require.False(t, found)
}
