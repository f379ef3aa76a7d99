package zkdriver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An answered Sync does not renew the lease of a session that has a node, so
// such a session must send writes as well.
func TestASessionWithNodesSendsWrites(t *testing.T) {
	for _, node := range []string{"holds", "waits"} {
		t.Run(node, func(t *testing.T) {
			t.Parallel()
			lives(t, 2*time.Second, func(timeout time.Duration) error {
				b := newFixture(t, "session_timeout="+timeout.String())
				if node == "waits" {
					holder := b.another("")
					p, err := create(within(t), holder, "q", "h-W-", []byte("x"))
					require.NoError(t, err)
					if _, err := waitFor(within(t), b, "q", p.Name); err != nil {
						return err
					}
				} else if _, err := create(within(t), b, "q", "h-W-", []byte("x")); err != nil {
					return err
				}
				syncs := b.proxy.Frames(zktest.OpSync)
				heartbeats(t, b.session, 5, func() int { return b.proxy.Frames(zktest.OpMulti) }) // writes only
				if b.Err() == nil {
					require.Greater(t, b.proxy.Frames(zktest.OpSync), syncs)
					require.Zero(t, b.proxy.Frames(zktest.OpPing))
				}
				return b.Err()
			})
		})
	}
}

func TestHeartbeatsCostTheSameForAnyNumberOfNodes(t *testing.T) {
	t.Parallel()
	lives(t, 2*time.Second, func(timeout time.Duration) error {
		b := newFixture(t, "session_timeout="+timeout.String())
		other := b.another("")
		for i := range 80 {
			queue := fmt.Sprint("q", i%10)
			p, err := create(within(t), other, queue, "h-W-", []byte("x"))
			require.NoError(t, err)
			if _, err := create(within(t), b, queue, "h-W-", []byte("x")); err != nil {
				return err
			}
			if _, err := watchName(within(t), b, queue, p.Name); err != nil {
				return err
			}
		}
		before := map[int32]int{}
		idle := []int32{zktest.OpCreate, zktest.OpDelete, zktest.OpExists, zktest.OpGetData, zktest.OpSetData, zktest.OpGetChildren2, zktest.OpPing}
		for _, op := range idle {
			before[op] = b.proxy.Frames(op)
		}
		heartbeats(t, b.session, 7, func() int { return b.proxy.Frames(zktest.OpMulti) })
		for _, op := range idle {
			if b.Err() == nil {
				require.Equal(t, before[op], b.proxy.Frames(op), "operation %d", op)
			}
		}
		return b.Err()
	})
}

func TestIdleSessionLivesOn(t *testing.T) {
	t.Parallel()
	lives(t, 2*time.Second, func(timeout time.Duration) error {
		b := newFixture(t, "session_timeout="+timeout.String())
		heartbeats(t, b.session, 12, func() int { return b.proxy.Frames(zktest.OpSync) })
		return b.Err()
	})
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
	case <-gone: // Err reports the end of the session before Done is closed
		require.Error(t, b.Err(), "the store let go first")
	case <-time.After(bound):
		t.Fatal("the session did not end")
	}
	ended(t, gone)
	require.ErrorIs(t, b.Err(), driver.ErrSessionEnded)
	require.ErrorIs(t, b.Close(), driver.ErrUnavailable)
}

// A follower that has lost its leader goes on answering reads for ten seconds.
// Those answers must not renew the lease.
func TestServerWithoutItsLeaderDoesNotKeepASessionAlive(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
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
	case <-gone: // Err reports the end of the session before Done is closed
		assert.Error(t, s.Err(), "the store let go first")
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
		// The server grants a session timeout of at most ten minutes.
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
		lives(t, 2*time.Second, func(timeout time.Duration) error {
			p := zktest.NewProxy(t, server.Addr())
			s := mustConnect(t, "zk://"+p.Addr()+"/locks?session_timeout="+timeout.String())
			if nodes {
				if _, err := create(within(t), s, "q", "h-W-", []byte("x")); err != nil {
					return err
				}
			}
			// Twelve heartbeats take longer than a lease lasts without renewal.
			heartbeats(t, s, 12, func() int { return p.Frames(zktest.OpSync) + p.Frames(zktest.OpMulti) })
			return s.Err()
		})
	}
}

func TestASlowStoreCostsNoSession(t *testing.T) {
	for _, delay := range []time.Duration{150 * time.Millisecond, 300 * time.Millisecond} {
		t.Run(fmt.Sprint(delay), func(t *testing.T) {
			t.Parallel()
			lives(t, 4*time.Second, func(timeout time.Duration) error {
				b := newFixture(t, "session_timeout="+timeout.String())
				b.mustCreate("q", "h-W-", "x")
				b.proxy.SetDelay(delay) // in each direction
				heartbeats(t, b.session, 10, b.proxy.Requests)
				return b.Err()
			})
		})
	}
}
