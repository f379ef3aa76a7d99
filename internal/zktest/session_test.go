package zktest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestPasswordIsTheServers(t *testing.T) {
	p, conn, _ := proxied(t)
	require.Equal(t, p.Sessions()[0].Passwd, Password(conn.SessionID()))
}

func TestExpiredSessionLosesItsNodesAtOnceAndItsClientLearns(t *testing.T) {
	s := Shared(t)
	root := s.Chroot(t)
	p := NewProxy(t, s.Addr())
	conn := Dial(t, time.Minute, p.Addr())
	require.NoError(t, create(conn, root+"/a"))
	session := p.Sessions()[0]
	_, _, gone, err := s.Raw(t).ExistsW(root + "/a")
	require.NoError(t, err)

	require.NoError(t, Expire(s.Addr(), session.ID, session.Passwd))

	require.Equal(t, zk.EventNodeDeleted, (<-gone).Type)
	require.Empty(t, s.Tree(t, root))
	eventually(t, func() bool { return conn.State() == zk.StateHasSession && conn.SessionID() != session.ID })
	require.Error(t, Expire(s.Addr(), session.ID, session.Passwd), "the server does not know the session any more")
}

func TestExpireNeedsTheRightPassword(t *testing.T) {
	s := Shared(t)
	p := NewProxy(t, s.Addr())
	conn := Dial(t, time.Minute, p.Addr())
	before := conn.SessionID()
	require.Error(t, Expire(s.Addr(), before, make([]byte, 16)))
	eventually(t, func() bool { return len(p.Sessions()) == 2 && conn.State() == zk.StateHasSession })
	require.Equal(t, before, conn.SessionID(), "the server only cuts the client off")
	require.NoError(t, Expire(s.Addr(), before, nil))
}
