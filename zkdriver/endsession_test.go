package zkdriver

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

func TestCloseEndsASessionWhoseConnectionHasJustBroken(t *testing.T) {
	t.Parallel()
	for range 10 {
		b := newFixture(t, "session_timeout=10s")
		p := b.mustCreate("q", "h-W-", "x")
		b.proxy.DropConnections()
		require.NoError(t, b.Close())
		there, _, err := b.raw.Exists(b.chroot + "/q/" + p.Name)
		require.NoError(t, err)
		require.False(t, there)
	}
}

func TestCloseEndsTheSessionOnceTheStoreIsBack(t *testing.T) {
	t.Parallel()
	for _, down := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 1500 * time.Millisecond} {
		b := newFixture(t, "session_timeout=10s")
		p := b.mustCreate("q", "h-W-", "x")
		b.proxy.Refuse()
		b.proxy.DropConnections()
		time.Sleep(down) // the driver is between two attempts
		b.proxy.Heal()
		require.NoError(t, b.Close())
		there, _, err := b.raw.Exists(b.chroot + "/q/" + p.Name)
		require.NoError(t, err)
		require.False(t, there)
	}
}

func TestCloseGoesToAnotherServerWhereTheOneInUseIsSilent(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	proxies := []*zktest.Proxy{zktest.NewProxy(t, server.Addr()), zktest.NewProxy(t, server.Addr())}
	s := mustConnect(t, "zk://"+proxies[0].Addr()+","+proxies[1].Addr()+chroot+"?session_timeout=10s")
	_, err := create(within(t), s, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	for _, proxy := range proxies {
		if proxy.Connections() > 0 {
			proxy.Cut()
		}
	}
	require.NoError(t, s.Close())
}

func TestALateAnswerThatAQueueIsNotThereDropsNoNodeMadeSince(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=20s")
	asked := b.own.createdSoFar()
	_, _, err := b.conn.Children(b.settings.queuePath("q"))
	require.ErrorIs(t, err, zk.ErrNoNode)
	p := b.mustCreate("q", "h-W-", "x") // by another goroutine, before the answer is handled
	b.own.queueGone("q", asked)
	b.own.nodeGone("q", p.Name, asked)
	require.True(t, b.own.duty() == zkconn.Holding)
	_, err = b.Replace(within(t), "q", p, "h-R-")
	require.NoError(t, err)
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
		s := mustConnect(t, "zk://"+p.Addr()+"/locks?session_timeout=1s")
		if nodes {
			_, err = create(within(t), s, "q", "h-W-", []byte("x"))
			require.NoError(t, err)
		}
		eventually(t, "thirty heartbeats", func() bool { return p.Frames(zktest.OpSync)+p.Frames(zktest.OpMulti) >= 30 })
		require.NoError(t, s.Err())
	}
}

// A slow answer must not end the session.
func TestASlowStoreCostsNoSession(t *testing.T) {
	for _, delay := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond} {
		t.Run(fmt.Sprint(delay), func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, "session_timeout=8s")
			b.mustCreate("q", "h-W-", "x")
			b.proxy.SetDelay(delay) // each way
			before := b.proxy.Requests()
			eventually(t, "fifteen heartbeats", func() bool { return b.Err() != nil || b.proxy.Requests() >= before+15 })
			require.NoError(t, b.Err())
		})
	}
}

// expireLease makes the lease of a session run out, while the server keeps the
// session.
func expireLease(t testing.TB, b *fixture) {
	t.Helper()
	leasehook.Skew(b.conn.Lease(), time.Minute)
	require.ErrorIs(t, b.Err(), driver.ErrSessionEnded)
	closed(t, "the session is taken down here", b.conn.Finished())
}

func (b *fixture) there(queue string, p driver.Place) bool {
	b.t.Helper()
	there, _, err := b.raw.Exists(b.chroot + "/" + queue + "/" + p.Name)
	require.NoError(b.t, err)
	return there
}

func TestCloseEndsASessionWhoseLeaseHasRunOut(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=1m")
	p := b.mustCreate("q", "h-W-", "x")
	expireLease(t, b)
	require.True(t, b.there("q", p), "its holder may not know yet")
	require.Zero(t, b.proxy.Frames(zktest.OpClose))
	require.NoError(t, b.Close())
	require.False(t, b.there("q", p))
	require.NoError(t, b.Close())
	require.Equal(t, 1, b.proxy.Frames(zktest.OpClose))
}

func TestCloseThatFailedCanBeRepeated(t *testing.T) {
	t.Parallel()
	for name, lapse := range map[string]bool{"of a session that lives": false, "of one whose lease has run out": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, "session_timeout=1m")
			p := b.mustCreate("q", "h-W-", "x")
			b.proxy.Refuse()
			b.proxy.DropConnections()
			if lapse {
				expireLease(t, b)
			}
			err := b.Close()
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.ErrorContains(t, err, "at most 1m0s after a server has heard of it last")
			require.True(t, b.there("q", p))
			b.proxy.Heal()
			require.NoError(t, b.Close())
			require.False(t, b.there("q", p))
		})
	}
}

func TestCloseOfASessionThatTheServerHasLetExpireIsDone(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=1m")
	b.mustCreate("q", "h-W-", "x")
	expireLease(t, b)
	session := b.proxy.Sessions()[0]
	require.NoError(t, zktest.Expire(b.server.Addr(), session.ID, session.Passwd))
	require.NoError(t, b.Close())
	require.Zero(t, b.proxy.Frames(zktest.OpClose))
}

// Each attempt that reaches a server keeps the session for another timeout. If
// all attempts were too short, the session would never end.
func TestAttemptsToEndALostSessionSucceedOnASlowNetwork(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=10s")
	b.mustCreate("q", "h-W-", "x")
	b.proxy.SetDelay(700 * time.Millisecond) // each way
	expireLease(t, b)
	var err error
	for try := 0; try == 0 || err != nil; try++ {
		require.Less(t, try, 5, "last error: %v", err)
		err = b.Close()
	}
	require.NotZero(t, b.proxy.Frames(zktest.OpClose), "the session has not expired by itself")
}
