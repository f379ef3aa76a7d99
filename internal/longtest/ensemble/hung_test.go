package ensemble

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

const hungTimeout = 4 * time.Second

// One of three hosts accepts connections but never answers. Each client tries
// the hosts in its own random order, so the test uses several clients.
func TestHostThatNeverAnswersDelaysNoClientForASessionTimeout(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*zktest.Proxy){
		"and the server in use goes down": func(p *zktest.Proxy) { p.Refuse(); p.DropConnections() },
		"and the server in use hangs":     (*zktest.Proxy).Cut,
	} {
		t.Run(name, func(t *testing.T) {
			stalls, began, silent := watchStalls(t), time.Now(), silentHost(t)
			var slowest [2]time.Duration
			var mu sync.Mutex
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					took := failOver(t, fmt.Sprint("q", i), silent, fail)
					mu.Lock()
					defer mu.Unlock()
					for j := range slowest {
						slowest[j] = max(slowest[j], took[j])
					}
				})
			}
			all.Wait()
			t.Logf("session timeout %v: slowest connect and fail-over %v", hungTimeout, slowest)
			if stalls.within(time.Since(began)) {
				t.Log("this process got no processor for a moment, so these times show nothing")
				return
			}
			assert.Less(t, slowest[0], hungTimeout)
			assert.Less(t, slowest[1], hungTimeout)
		})
	}
}

// failOver returns how long it took to acquire a lock, and to acquire another one
// after the server in use had failed. The client's data source name has three
// hosts: two proxies to one server, and the silent host.
func failOver(t *testing.T, name, silent string, fail func(*zktest.Proxy)) (took [2]time.Duration) {
	server := zktest.Shared(t)
	one, other := zktest.NewProxy(t, server.Addr()), zktest.NewProxy(t, server.Addr())
	client := open(t, dsn(server.Chroot(t)+"?session_timeout="+hungTimeout.String(), one.Addr(), other.Addr(), silent))
	for i := range took {
		began := time.Now()
		if i > 0 && one.Connections() > 0 {
			fail(one)
		} else if i > 0 {
			fail(other)
		}
		l, err := client.RWMutex(fmt.Sprint(name, i)).Lock(within(t))
		took[i] = time.Since(began)
		if !assert.NoError(t, err) || i > 0 && !assert.NoError(t, l.Unlock()) {
			return took
		}
	}
	return took
}

// silentHost returns the address of a host that accepts connections but never
// answers.
func silentHost(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); accepting.Wait() })
	return l.Addr().String()
}
