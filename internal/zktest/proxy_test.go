package zktest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
)

// proxied returns a proxy in front of the shared server, a client connected
// through it, and a path that only this test uses.
func proxied(t *testing.T) (p *Proxy, conn *zk.Conn, root string) {
	s := Shared(t)
	root = s.Chroot(t)
	p = NewProxy(t, s.Addr())
	return p, Dial(t, 30*time.Second, p.Addr()), root
}

func create(conn *zk.Conn, path string) error {
	_, err := conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	return err
}

func async(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

func TestProxyCountsRequestsByOperation(t *testing.T) {
	p, conn, root := proxied(t)
	var seen []int32
	p.OnRequest(func(opcode int32) {
		if opcode != OpPing {
			seen = append(seen, opcode)
		}
	})
	require.NoError(t, create(conn, root+"/a"))
	_, _, err := conn.Children(root)
	require.NoError(t, err)
	_, err = conn.Multi(&zk.DeleteRequest{Path: root + "/a", Version: -1})
	require.NoError(t, err)
	p.OnRequest(nil)

	require.Equal(t, []int32{OpCreate, OpGetChildren2, OpMulti}, seen)
	require.Equal(t, 1, p.Frames(OpConnect))
	require.Equal(t, 1, p.Frames(OpCreate))
	require.Equal(t, 1, p.Frames(OpMulti))
	require.Equal(t, 0, p.Frames(OpDelete))
	require.Equal(t, 3, p.Requests())
}

func TestCutToClientHoldsUpRepliesOnly(t *testing.T) {
	p, conn, root := proxied(t)
	p.CutOneWay(testenv.ToClient)
	created := async(func() error { return create(conn, root+"/a") })
	eventually(t, func() bool { return len(Shared(t).Tree(t, root)) == 1 })
	require.Empty(t, created)
	p.Heal()
	require.NoError(t, <-created)
}

func TestLostReplyWasCommitted(t *testing.T) {
	p, conn, root := proxied(t)
	lost := p.LoseReply(Op(OpCreate))
	err := create(conn, root+"/a")
	require.ErrorIs(t, err, zk.ErrConnectionClosed)
	within(t, lost)
	require.Zero(t, p.Frames(OpPing), "the client need not find out by itself that the connection is dead")
	require.Equal(t, []string{root + "/a"}, Shared(t).Tree(t, root))
	require.NoError(t, create(conn, root+"/b"), "the fault is for one request")
}

func TestLostRequestWasNotCommitted(t *testing.T) {
	p, conn, root := proxied(t)
	lost := p.LoseRequest(Op(OpCreate, OpMulti))
	_, _, err := conn.Children(root)
	require.NoError(t, err, "the fault is for other requests")
	err = create(conn, root+"/a")
	require.ErrorIs(t, err, zk.ErrConnectionClosed)
	within(t, lost)
	require.Empty(t, Shared(t).Tree(t, root))
	require.NoError(t, create(conn, root+"/b"))
}

func TestAnswersOvertakeHeldEvents(t *testing.T) {
	p, conn, root := proxied(t)
	_, _, events, err := conn.ChildrenW(root)
	require.NoError(t, err)
	hold := p.HoldEvents()
	require.NoError(t, create(conn, root+"/a"))
	within(t, hold.Held())
	require.NoError(t, create(conn, root+"/b"))
	require.Empty(t, events)
	hold.Release()
	require.Equal(t, zk.EventNodeChildrenChanged, (<-events).Type)
	_, _, events, err = conn.ChildrenW(root)
	require.NoError(t, err)
	require.NoError(t, create(conn, root+"/c"))
	require.Equal(t, zk.EventNodeChildrenChanged, (<-events).Type, "nothing is held any more")
}
