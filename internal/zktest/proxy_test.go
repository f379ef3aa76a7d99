package zktest

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
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

func TestCutHoldsUpBothDirectionsAndHealLetsPass(t *testing.T) {
	p, conn, root := proxied(t)
	p.Cut()
	created := async(func() error { return create(conn, root+"/a") })
	eventually(t, func() bool { return p.Frames(OpCreate) == 1 })
	require.Empty(t, Shared(t).Tree(t, root))
	require.Empty(t, created)
	p.Heal()
	require.NoError(t, <-created)
	require.Equal(t, 1, p.Connections())
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

func TestConnectionMadeDuringCutReachesServerAfterHeal(t *testing.T) {
	p := NewProxy(t, Shared(t).Addr())
	p.Cut()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("ruok"))
	require.NoError(t, err)
	eventually(t, func() bool { return p.Connections() == 1 })
	p.Heal()
	answer := make([]byte, 4)
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)
	require.Equal(t, "imok", string(answer))
}

func TestRefusedConnectionsClose(t *testing.T) {
	p := NewProxy(t, Shared(t).Addr())
	p.Refuse()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	p.Heal()
	Dial(t, time.Second, p.Addr())
}

func TestDroppedClientReconnectsToItsSession(t *testing.T) {
	p, conn, _ := proxied(t)
	before := conn.SessionID()
	p.DropConnections()
	eventually(t, func() bool { return len(p.Sessions()) == 2 && conn.State() == zk.StateHasSession })
	require.Equal(t, before, conn.SessionID())
	require.Equal(t, p.Sessions()[0], p.Sessions()[1])
}

func TestDelayCountsInEachDirection(t *testing.T) {
	p, conn, _ := proxied(t)
	const delay = 60 * time.Millisecond
	p.SetDelay(delay)
	start := time.Now()
	_, _, err := conn.Children("/")
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), 2*delay)
}

func TestRetargetMovesNewConnectionsOnly(t *testing.T) {
	p, conn, _ := proxied(t)
	other := Start(t)
	p.Retarget(other.Addr())
	require.Contains(t, askThrough(t, p, "conf"), other.proc.Dir())
	_, _, err := conn.Children("/")
	require.NoError(t, err)
	require.Len(t, p.Sessions(), 1)
}

func askThrough(t *testing.T, p *Proxy, word string) string {
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, word)
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(answer)
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

func TestLostConnectReplyLeavesSessionToServer(t *testing.T) {
	s := Start(t)
	p := NewProxy(t, s.Addr())
	lost := p.LoseReply(Op(OpConnect))
	Dial(t, 30*time.Second, p.Addr())
	within(t, lost)
	require.Len(t, p.Sessions(), 2)
	require.EqualValues(t, 2, s.Mntr()["zk_global_sessions"])
}

func TestHeldReplyComesAfterRelease(t *testing.T) {
	p, conn, root := proxied(t)
	hold := p.HoldReplies(Op(OpCreate))
	created := async(func() error { return create(conn, root+"/a") })
	within(t, hold.Held())
	require.Equal(t, []string{root + "/a"}, Shared(t).Tree(t, root))
	require.Empty(t, created)
	hold.Release()
	require.NoError(t, <-created)
	require.NoError(t, create(conn, root+"/b"))
}

func TestHeldRequestReachesServerAfterRelease(t *testing.T) {
	p, conn, root := proxied(t)
	hold := p.HoldRequests(Op(OpCreate))
	created := async(func() error { return create(conn, root+"/a") })
	within(t, hold.Held())
	require.Empty(t, Shared(t).Tree(t, root))
	hold.Release()
	require.NoError(t, <-created)
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

func TestCutOutlastsHold(t *testing.T) {
	p, conn, root := proxied(t)
	hold := p.HoldRequests(Op(OpCreate))
	created := async(func() error { return create(conn, root+"/a") })
	within(t, hold.Held())
	p.Cut()
	hold.Release()
	require.Empty(t, Shared(t).Tree(t, root))
	p.Heal()
	require.NoError(t, <-created)
}

func TestHookMayCutOffItsOwnRequest(t *testing.T) {
	p, conn, root := proxied(t)
	p.OnRequest(func(opcode int32) {
		if opcode == OpCreate {
			p.Cut()
		}
	})
	created := async(func() error { return create(conn, root+"/a") })
	eventually(t, func() bool { return p.Frames(OpCreate) == 1 })
	require.Empty(t, Shared(t).Tree(t, root))
	p.Heal()
	require.NoError(t, <-created)
}

func TestBigRequestsPassTheProxy(t *testing.T) {
	_, conn, root := proxied(t)
	_, err := conn.Create(root+"/big", make([]byte, 1_000_000), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	data, _, err := conn.Get(root + "/big")
	require.NoError(t, err)
	require.Len(t, data, 1_000_000)
}

func TestProxyLeavesNoGoroutine(t *testing.T) {
	s := Shared(t)
	t.Run("test", func(t *testing.T) {
		p := NewProxy(t, s.Addr())
		p.HoldReplies(Op(OpGetData))
		conn := Dial(t, 30*time.Second, p.Addr())
		go conn.Get("/")
		eventually(t, func() bool { return p.Frames(OpGetData) == 1 })
		p.Cut()
		t.Cleanup(p.Heal)
	})
	eventually(t, func() bool {
		return !strings.Contains(stacks(), "testenv.(*Proxy)") && !strings.Contains(stacks(), "testenv.(*connection)")
	})
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func TestUnreachableServerClosesConnections(t *testing.T) {
	l, err := testenv.Listen()
	require.NoError(t, err)
	l.Close()
	p := NewProxy(t, l.Addr().String())
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout())
}

func TestForgottenFaultsHitNoRequest(t *testing.T) {
	p, conn, root := proxied(t)
	lost := p.LoseReply(Op(OpCreate))
	held := p.HoldRequests(Op(OpCreate))
	p.ForgetFaults()
	require.NoError(t, create(conn, root+"/a"))
	require.NotPanics(t, held.Release)
	select {
	case <-lost:
		t.Fatal("the fault hit a request")
	default:
	}

	h := p.HoldReplies(Op(OpDelete))
	deleted := async(func() error { return conn.Delete(root+"/a", -1) })
	within(t, h.Held())
	p.ForgetFaults()
	require.NoError(t, <-deleted, "what was held back passes")
}
