package zkdriver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/zktest"
)

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

// Each attempt to end a session first reconnects, and so prolongs the session.
func TestAttemptsToEndALostSessionSucceedOnASlowNetwork(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=10s")
	p := b.mustCreate("q", "h-W-", "x")
	b.proxy.SetDelay(700 * time.Millisecond) // in each direction
	expireLease(t, b)
	require.True(t, b.there("q", p), "the driver has removed the node before its holder could know of the end")
	require.Zero(t, b.proxy.Frames(zktest.OpClose))
	var err error
	for try := 0; try == 0 || err != nil; try++ {
		require.Less(t, try, 5, "last error: %v", err)
		err = b.Close()
	}
	require.NotZero(t, b.proxy.Frames(zktest.OpClose), "the session has not expired by itself")
	require.False(t, b.there("q", p))
}
