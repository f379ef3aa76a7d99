package zkdriver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// The lease of a holder never counts from a later time than that at which the
// latest answered write was sent. So Syncs alone do not renew it.
func TestASessionWithNodesSendsWrites(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=2s")
	p := b.mustCreate("q", "h-W-", "x")
	writes, syncs := b.proxy.Frames(zktest.OpMulti), b.proxy.Frames(zktest.OpSync)
	eventually(t, "five heartbeats that are writes", func() bool {
		require.NoError(t, b.Err())
		return b.proxy.Frames(zktest.OpMulti) >= writes+5
	})
	require.Greater(t, b.proxy.Frames(zktest.OpSync), syncs)
	require.Zero(t, b.proxy.Frames(zktest.OpPing))
	require.NoError(t, b.Err())
	require.NoError(t, b.Delete(within(t), "q", p, driver.Changed))
}

// One heartbeat is one request, however many nodes and watches the session has.
func TestHeartbeatsCostTheSameForAnyNumberOfNodes(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=2s")
	other := b.another("")
	for i := range 200 {
		queue := fmt.Sprint("q", i%10)
		p, err := create(within(t), other, queue, "h-W-", []byte("x"))
		require.NoError(t, err)
		b.mustCreate(queue, "h-W-", "x")
		b.mustWatch(within(t), queue, p.Name)
	}
	before, kept := map[int32]int{}, b.proxy.Frames(zktest.OpMulti)
	idle := []int32{zktest.OpCreate, zktest.OpDelete, zktest.OpExists, zktest.OpGetData, zktest.OpSetData, zktest.OpGetChildren2, zktest.OpPing}
	for _, op := range idle {
		before[op] = b.proxy.Frames(op)
	}
	eventually(t, "it has sent ten heartbeats", func() bool { return b.proxy.Frames(zktest.OpMulti) >= kept+10 })
	for _, op := range idle {
		require.Equal(t, before[op], b.proxy.Frames(op), "operation %d", op)
	}
}

func TestIdleSessionLivesOn(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=2s")
	before := b.proxy.Frames(zktest.OpSync)
	eventually(t, "it has sent thirty heartbeats, or has ended", func() bool {
		return b.proxy.Frames(zktest.OpSync)-before >= 30 || b.Err() != nil
	})
	require.NoError(t, b.Err())
}

func TestSessionEndsBeforeTheServerExpiresIt(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=2s")
	p := b.mustCreate("q", "h-W-", "x")
	gone, err := watchName(within(t), b.another(""), "q", p.Name)
	require.NoError(t, err)
	b.proxy.Cut()
	select {
	case <-b.Done():
	case <-gone:
		t.Fatal("the store let go first")
	case <-time.After(bound):
		t.Fatal("the session did not end")
	}
	ended(t, gone)
	require.ErrorIs(t, b.Err(), driver.ErrSessionEnded)
	require.ErrorIs(t, b.Close(), driver.ErrUnavailable)
}

// In this test, a follower has lost its leader, and goes on answering reads for
// ten seconds.
func TestServerWithoutItsLeaderDoesNotKeepASessionAlive(t *testing.T) {
	t.Parallel()
	e := zktest.StartEnsemble(t, 3, zktest.WithConfig(map[string]string{"syncLimit": "20"}))
	follower, leader := e.Follower(t), e.Leader(t)
	s := mustConnect(t, "zk://"+e.Servers[follower].Addr()+"?session_timeout=3s")
	other := mustConnect(t, "zk://"+e.Servers[leader].Addr())
	p, err := create(within(t), s, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	gone, err := watchName(within(t), other, "q", p.Name)
	require.NoError(t, err)
	e.CutServer(follower)
	stop := make(chan struct{})
	reads := make(chan int, 1)
	// The follower goes on answering these reads. The answers must not renew
	// the lease.
	go func() {
		n := 0
		defer func() { reads <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if _, err := s.List(ctx, "q"); err == nil {
				n++
			}
			cancel()
		}
	}()
	select {
	case <-s.Done():
	case <-gone:
		t.Error("the store let go first")
	case <-time.After(bound):
		t.Error("the session did not end")
	}
	close(stop)
	require.Positive(t, <-reads)
	ended(t, gone)
}

func TestMarginOrTickBeyondWhatTheServerGrantsIsRefused(t *testing.T) {
	server := zktest.Shared(t)
	for _, parameter := range []string{"lease_margin", "tick_time"} {
		// The server grants at most ten minutes.
		_, err := dsnConnect(t, "zk://"+server.Addr()+"?session_timeout=1h&"+parameter+"=20m")
		require.ErrorContains(t, err, parameter+" is more than half of the timeout that the server grants a session: half of 10m0s")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
}

func TestARootThatMayNotBeReadCostsNoSession(t *testing.T) {
	t.Parallel()
	server := zktest.Start(t)
	raw := server.Raw(t)
	_, err := raw.Create("/locks", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = raw.SetACL("/", zk.DigestACL(zk.PermAll, "a", "b"), -1)
	require.NoError(t, err)
	for _, nodes := range []bool{false, true} {
		p := zktest.NewProxy(t, server.Addr())
		s := mustConnect(t, "zk://"+p.Addr()+"/locks?session_timeout=4s")
		if nodes {
			_, err = create(within(t), s, "q", "h-W-", []byte("x"))
			require.NoError(t, err)
		}
		eventually(t, "twelve heartbeats, which take longer than a lease lasts", func() bool { return p.Frames(zktest.OpSync)+p.Frames(zktest.OpMulti) >= 12 })
		require.NoError(t, s.Err())
	}
}

func TestASlowStoreCostsNoSession(t *testing.T) {
	for _, delay := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond} {
		t.Run(fmt.Sprint(delay), func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, "session_timeout=8s")
			b.mustCreate("q", "h-W-", "x")
			b.proxy.SetDelay(delay) // the delay in each direction
			before := b.proxy.Requests()
			eventually(t, "fifteen heartbeats", func() bool { return b.Err() != nil || b.proxy.Requests() >= before+15 })
			require.NoError(t, b.Err())
		})
	}
}
