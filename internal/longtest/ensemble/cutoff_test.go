package ensemble

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

const cutTimeout = 2 * time.Second

// writesOf returns about how often a holder's session sends a write: with every
// third heartbeat.
func writesOf(timeout time.Duration) time.Duration { return timeout * 3 / 8 }

func TestHolderBehindASlowNetworkKeepsTheLock(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	const (
		delay   = 50 * time.Millisecond
		timeout = 3 * cutTimeout // slow machines need more time
	)
	p := zktest.NewProxy(t, server.Addr())
	p.SetDelay(delay)
	slow := dsn(chroot+"?session_timeout="+timeout.String(), p.Addr())
	h := contend(t, "q", slow, slow)
	began := time.Now()
	for moves := 0; moves < 3 || time.Since(began) <= timeout; moves++ {
		heartbeats := p.Frames(zktest.OpMulti)
		p.DropConnections() // moves the sessions to other connections
		eventually(t, "heartbeats on the new connection", func() bool {
			return p.Frames(zktest.OpMulti) >= heartbeats+3 || h.lock.Err() != nil
		})
		require.NoError(t, h.lock.Err(), "lost by a move to another connection")
	}
	require.Len(t, h.next, 0)
	began = time.Now()
	require.NoError(t, h.lock.Unlock())
	g := <-h.next
	require.NoError(t, g.err)
	t.Logf("with %v in each direction the waiter had acquired and released the lock %v after Unlock was called", delay, time.Since(began))
	for range 3 {
		l, err := h.holder.RWMutex("q").Lock(within(t))
		require.NoError(t, err)
		require.NoError(t, l.Unlock())
	}
}
