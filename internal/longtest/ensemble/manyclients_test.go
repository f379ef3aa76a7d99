package ensemble

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// Two hundred clients connect at once to a server with a short accept queue and
// want the same lock. Some lock libraries give up in this situation, or leave
// nodes behind.
func TestTwoHundredClientsThatStartAtOnceAllGetTheLock(t *testing.T) {
	t.Parallel()
	const clients = 200
	server := zktest.Start(t, zktest.WithBacklog(8))
	at := dsn("/crowd?session_timeout=10s", server.Addr())
	var all []*dlock.Client
	for range clients {
		all = append(all, open(t, at))
	}
	ctx := within(t)
	start := make(chan struct{})
	var inside, held, token atomic.Int64
	var crowd sync.WaitGroup
	for i, c := range all {
		m := c.RWMutex("q", dlock.WithHostname(fmt.Sprintf("host%d", i)))
		crowd.Go(func() {
			<-start
			l, err := m.Lock(ctx)
			if !assert.NoError(t, err) {
				return
			}
			assert.EqualValues(t, 1, inside.Add(1), "inside at once")
			assert.Less(t, token.Swap(l.Token()), l.Token())
			held.Add(1)
			inside.Add(-1)
			assert.NoError(t, l.Unlock())
		})
	}
	began := time.Now()
	close(start)
	crowd.Wait()
	t.Logf("%d clients had the lock, one after the other, within %v", held.Load(), time.Since(began).Round(time.Millisecond))
	require.EqualValues(t, clients, held.Load())
	require.Equal(t, []string{"/crowd", "/crowd/q"}, server.Tree(t, "/"))

	var closing sync.WaitGroup
	for _, c := range all {
		closing.Go(func() { assert.NoError(t, c.Close()) })
	}
	closing.Wait()
	require.Zero(t, server.Ephemerals())
	require.Zero(t, server.Watches())
	// An abandoned connection attempt may leave a session without nodes,
	// which expires.
	eventually(t, "no session is left", func() bool { return server.Mntr()["zk_global_sessions"] == 0 })
}
