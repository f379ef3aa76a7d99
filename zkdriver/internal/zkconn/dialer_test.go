package zkconn

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestForeignSessionIsNeverAdopted(t *testing.T) {
	c := mustDial(t, testConfig(zktest.Shared(t).Addr()))
	require.Error(t, c.dialer.checkReply(connectReply{session: c.SessionID() + 1, timeout: c.dialer.timeout}))
	closed(t, "the session is over", c.Lease().Done())
	require.ErrorIs(t, c.Lease().Err(), driver.ErrSessionEnded)
}

type watching struct{ noEvents }

func (watching) Watching() bool { return true }

// Otherwise the report of an older change could end a watch that was just set.
func TestAfterAReconnectTheWatchesAreSetBeforeAnyRequest(t *testing.T) {
	server := zktest.Shared(t)
	proxy := zktest.NewProxy(t, server.Addr())
	config := testConfig(proxy.Addr())
	config.Events = watching{}
	config.SessionTimeout = 10 * time.Minute
	path := server.Chroot(t)
	c := mustDial(t, config)
	c.dialer.mu.Lock()
	c.dialer.maxRequestPause = bound // long enough even for a slow machine
	c.dialer.mu.Unlock()
	_, _, err := c.WatchData(path)
	require.NoError(t, err)

	proxy.Refuse()
	proxy.DropConnections()
	var reads sync.WaitGroup
	for range 4 { // go-zookeeper queues these reads until it is connected
		reads.Go(func() { c.Get(path) })
	}
	first := make(chan int32, 1)
	proxy.OnRequest(func(opcode int32) {
		if opcode == zktest.OpConnect {
			return
		}
		select {
		case first <- opcode:
		default:
		}
	})
	proxy.Heal()
	require.EqualValues(t, opSetWatches, <-first)
	reads.Wait()
}
