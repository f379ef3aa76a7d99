package natstest

import (
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Cluster is a cluster of servers, which reach each other through proxies.
type Cluster struct {
	Servers []*Server
	links   map[[2]int]*testenv.Proxy // by client ports, the dialing server's first
}

// StartCluster starts a cluster of n servers, and waits until all are ready.
func StartCluster(t testing.TB, n int, options ...Option) *Cluster {
	t.Helper()
	c := &Cluster{links: make(map[[2]int]*testenv.Proxy)}
	routes := func(s *testenv.Server, all []*testenv.Server) (routes []string) {
		for _, to := range all {
			if s.Port(0) != to.Port(0) {
				link := testenv.NewProxy(t, testenv.Loopback(to.Port(1)), nil)
				c.links[[2]int{s.Port(0), to.Port(0)}] = link
				routes = append(routes, "nats://"+link.Addr())
			}
		}
		return routes
	}
	for _, s := range nats.StartAll(t, n, configure(options, routes)) {
		c.Servers = append(c.Servers, &Server{*s})
	}
	return c
}

func (c *Cluster) Addrs() (addrs []string) {
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// CutOff cuts servers off from the others until the function heal is called.
func (c *Cluster) CutOff(servers ...*Server) (heal func()) {
	inside := make(map[int]bool)
	for _, s := range servers {
		inside[s.Port(0)] = true
	}
	for ports, link := range c.links {
		if inside[ports[0]] != inside[ports[1]] {
			link.Cut()
		}
	}
	return func() {
		for _, link := range c.links {
			link.DropConnections()
			link.Heal()
		}
	}
}

// Leader waits until a server says that it leads the stream, and returns that
// server. Servers passed after the stream's name are ignored.
func (c *Cluster) Leader(t testing.TB, stream string, without ...*Server) *Server {
	t.Helper()
	for end := time.Now().Add(testenv.ReadyWithin); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for _, s := range c.Servers {
			if streams, _ := s.Streams(); streams[stream] == name(&s.Server) && !slices.Contains(without, s) {
				return s
			}
		}
	}
	t.Fatalf("the stream %s has no leader", stream)
	return nil
}
