package zkdriver

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// A heartbeat is a Sync or, in a session with nodes, sometimes a Multi.
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
		others := func() int { return b.proxy.Requests() - b.proxy.Frames(zktest.OpMulti) - b.proxy.Frames(zktest.OpSync) }
		before := others()
		heartbeats(t, b.session, 7, func() int { return b.proxy.Frames(zktest.OpMulti) })
		if b.Err() == nil {
			require.Equal(t, before, others())
		}
		return b.Err()
	})
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

func TestTheLeaseEndsTheMarginBeforeTheSession(t *testing.T) {
	server := zktest.Shared(t)
	for parameter, term := range map[string]time.Duration{"": 1500 * time.Millisecond, "&lease_margin=800ms": 1200 * time.Millisecond} {
		s := mustConnect(t, "zk://"+server.Addr()+server.Chroot(t)+"?session_timeout=2s"+parameter)
		terms := make(chan time.Duration, 1)
		s.OnHeartbeat(func(_, term time.Duration) {
			select {
			case terms <- term:
			default:
			}
		})
		got, _ := testenv.Receive(t, terms, "a heartbeat")
		require.Equal(t, term, got)
		require.NoError(t, s.Close())
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
