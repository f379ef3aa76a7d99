package ensemble

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

const cutTimeout = 2 * time.Second

func TestHolderCutOffFromTheServerIsToldBeforeTheNextGrant(t *testing.T) {
	for name, cut := range map[string]func(*zktest.Proxy){
		"in both directions":       (*zktest.Proxy).Cut,
		"on the way to the server": func(p *zktest.Proxy) { p.CutOneWay(testenv.ToServer) },
		"on the way back":          func(p *zktest.Proxy) { p.CutOneWay(testenv.ToClient) },
		"by a latency that rises":  func(p *zktest.Proxy) { p.SetDelay(cutTimeout) }, // twice the delay for a round trip
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 20
			server := zktest.Shared(t)
			chroot := server.Chroot(t)
			var all []*handover
			var wg sync.WaitGroup
			for i := range n {
				p := zktest.NewProxy(t, server.Addr())
				all = append(all, contend(t, fmt.Sprintf("q%d", i),
					dsn(chroot+"?session_timeout="+cutTimeout.String(), p.Addr()), dsn(chroot, server.Addr())))
				wg.Go(func() { cutAfterWrite(p, writesOf(cutTimeout)*time.Duration(i)/n, cut) })
			}
			wg.Wait()
			logMargins(t, "cut "+name, margins(t, all))
		})
	}
}

// writesOf returns the approximate interval at which the session of a lock
// holder sends writes: every third heartbeat is one.
func writesOf(timeout time.Duration) time.Duration { return timeout * 3 / 8 }

// cutAfterWrite calls cut at the given phase after the session's latest write.
// Tests vary the phase, because the lease depends on the age of that write.
func cutAfterWrite(p *zktest.Proxy, phase time.Duration, cut func(*zktest.Proxy)) {
	beat := make(chan struct{}, 1)
	p.OnRequest(func(opcode int32) {
		if opcode != zktest.OpMulti {
			return
		}
		select {
		case beat <- struct{}{}:
		default:
		}
	})
	defer p.OnRequest(nil)
	select {
	case <-beat:
	case <-time.After(bound): // cut anyway, because the caller checks the margin in any case
	}
	time.Sleep(phase)
	cut(p)
}

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
