package ensemble

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

// Connections break at random, losing requests, replies and events. No call may
// fail, no increment may be lost, and there must never be two holders.
func TestConnectionsBreakAllTheTimeAndNothingIsLost(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	var proxies []*zktest.Proxy
	var dsns []string
	for range 6 {
		p := zktest.NewProxy(t, server.Addr())
		proxies = append(proxies, p)
		dsns = append(dsns, dsn(chroot+"?session_timeout=10s", p.Addr()))
	}
	c := startCounting(t, dsns...)
	for i := range 300 {
		c.progress(t, 1)
		time.Sleep(time.Duration(i%7) * 300 * time.Microsecond) // break each connection at a different stage of Lock and Unlock
		proxies[i%len(proxies)].DropConnections()
	}
	c.progress(t, 50)
	c.stop(t)
}
