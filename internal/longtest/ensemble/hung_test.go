package ensemble

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
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
			stalls, began := watchStalls(t), time.Now()
			var all []*threeHosts
			for i := range 8 {
				all = append(all, newThreeHosts(t, fmt.Sprint("q", i)))
			}
			var wg sync.WaitGroup
			for _, h := range all {
				wg.Go(func() { h.failOver(t, fail) })
			}
			wg.Wait()
			var connect, over time.Duration
			kept := 0
			for _, h := range all {
				connect, over = max(connect, h.connected), max(over, h.failedOver)
				if h.kept {
					kept++
				}
			}
			t.Logf("session timeout %v: slowest connect %v, slowest fail-over %v, %d of %d kept their locks",
				hungTimeout, connect.Round(time.Millisecond), over.Round(time.Millisecond), kept, len(all))
			if stalls.within(time.Since(began)) {
				t.Log("this process got no processor for a moment, so these times show nothing")
				return
			}
			assert.Less(t, connect, hungTimeout)
			assert.Less(t, over, hungTimeout)
		})
	}
}

// threeHosts is a client whose data source name has three hosts: two proxies to
// one server, and a host that never answers.
type threeHosts struct {
	proxies               [2]*zktest.Proxy
	client                *dlock.Client
	lock                  *dlock.Lock
	name                  string
	connected, failedOver time.Duration
	kept                  bool
}

func newThreeHosts(t *testing.T, name string) *threeHosts {
	server := zktest.Shared(t)
	h := &threeHosts{name: name}
	for i := range h.proxies {
		h.proxies[i] = zktest.NewProxy(t, server.Addr())
	}
	h.client = open(t, dsn(server.Chroot(t)+"?session_timeout="+hungTimeout.String(), h.proxies[0].Addr(), h.proxies[1].Addr(), silentHost(t)))
	began := time.Now()
	var err error
	h.lock, err = h.client.RWMutex(name).Lock(within(t))
	require.NoError(t, err)
	h.connected = time.Since(began)
	return h
}

// silentHost returns the address of a host that accepts connections but never
// answers.
func silentHost(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
		}
		for _, c := range open {
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); accepting.Wait() })
	return l.Addr().String()
}

// failOver makes the proxy in use fail and then acquires a lock through the
// other one.
func (h *threeHosts) failOver(t *testing.T, fail func(*zktest.Proxy)) {
	used := h.proxies[0]
	if used.Connections() == 0 {
		used = h.proxies[1]
	}
	began := time.Now()
	fail(used)
	l, err := h.client.RWMutex(h.name + "-new").Lock(within(t))
	h.failedOver = time.Since(began)
	if !assert.NoError(t, err) {
		return
	}
	h.kept = h.lock.Err() == nil
	assert.NoError(t, l.Unlock())
}
