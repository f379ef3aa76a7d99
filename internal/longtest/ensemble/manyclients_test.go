package ensemble

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// With a short accept queue, some lock libraries give up or leave nodes behind.
func TestTwoHundredClientsThatStartAtOnceAllGetTheLock(t *testing.T) {
	t.Parallel()
	const clients = 200
	server := zktest.Start(t, zktest.WithBacklog(8))
	at := dsn("/crowd?session_timeout=10s", server.Addr())
	var all []*dlock.Client
	for range clients {
		all = append(all, open(t, at))
	}
	start := make(chan struct{})
	crowd := &crowd{t: t}
	for i, c := range all {
		crowd.lock(c.RWMutex("q", dlock.WithHostname(fmt.Sprintf("host%d", i))), start)
	}
	close(start)
	crowd.Wait()
	require.EqualValues(t, clients, crowd.held.Load())
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

type crowd struct {
	sync.WaitGroup
	t                   testing.TB
	inside, held, token atomic.Int64
}

func (c *crowd) lock(m *dlock.RWMutex, start <-chan struct{}) {
	ctx := within(c.t)
	c.Go(func() {
		<-start
		l, err := m.Lock(ctx)
		if !assert.NoError(c.t, err) {
			return
		}
		assert.EqualValues(c.t, 1, c.inside.Add(1), "inside at once")
		assert.Less(c.t, c.token.Swap(l.Token()), l.Token())
		c.held.Add(1)
		c.inside.Add(-1)
		if err := l.Unlock(); err != nil {
			assert.ErrorIs(c.t, err, dlock.ErrUnavailable) // a busy machine may confirm the release late
		}
	})
}
