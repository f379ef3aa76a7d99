package etcddriver

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/codes"
)

func init() { balancer.Register(answering{}) }

// answering is a gRPC balancer that does round robin but avoids learners and
// servers that hang with an open connection.
type answering struct{}

// Name implements [balancer.Builder].
func (answering) Name() string { return "dlock_answering" }

// Build implements [balancer.Builder].
func (answering) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return balancer.Get(roundrobin.Name).Build(&servers{ClientConn: cc, silent: make(map[balancer.SubConn]time.Time)}, opts)
}

const (
	watchMethod     = "/etcdserverpb.Watch/Watch"
	keepAliveMethod = "/etcdserverpb.Lease/LeaseKeepAlive"
)

// silentFor is how long a client avoids a server that has left a request
// unanswered, or that is a learner.
const silentFor = time.Minute

// servers tracks which servers of a client are unresponsive.
type servers struct {
	balancer.ClientConn

	mu      sync.Mutex
	silent  map[balancer.SubConn]time.Time // when to try the server again
	watches balancer.SubConn               // server of the latest watch stream
}

// UpdateState implements [balancer.ClientConn].
func (s *servers) UpdateState(state balancer.State) {
	state.Picker = picker{state.Picker, s}
	s.ClientConn.UpdateState(state)
}

type picker struct {
	roundRobin balancer.Picker
	*servers
}

// Pick implements [balancer.Picker]. It picks unresponsive servers last.
func (p picker) Pick(info balancer.PickInfo) (picked balancer.PickResult, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 2 + 2*len(p.silent) { // concurrent calls may advance the round robin
		if picked, err = p.roundRobin.Pick(info); err != nil || !p.avoids(picked.SubConn, info.FullMethodName) {
			break
		}
	}
	if err == nil {
		if info.FullMethodName == watchMethod {
			p.watches = picked.SubConn
		}
		picked.Done = func(done balancer.DoneInfo) { p.done(picked.SubConn, info.FullMethodName, done) }
	}
	return picked, err
}

// avoids reports whether another server is preferable. A new watch stream
// avoids the previous stream's server, which may be behind.
func (s *servers) avoids(server balancer.SubConn, method string) bool {
	return time.Now().Before(s.silent[server]) || method == watchMethod && server == s.watches
}

// done records whether a server answered. A cancelled heartbeat stream counts
// as unanswered, because its reply was overdue.
func (s *servers) done(server balancer.SubConn, method string, done balancer.DoneInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := code(done.Err)
	givenUp := c == codes.Canceled || c == codes.DeadlineExceeded
	switch {
	case method == watchMethod && !byLearner(done.Err):
	case byLearner(done.Err), givenUp && (!done.BytesReceived || method == keepAliveMethod), outOfTime(done.Err):
		now := time.Now()
		maps.DeleteFunc(s.silent, func(_ balancer.SubConn, until time.Time) bool { return until.Before(now) })
		s.silent[server] = now.Add(silentFor)
	case done.BytesReceived:
		delete(s.silent, server)
	}
}

// byLearner reports whether a learner refused the request, so that it is safe
// to repeat.
func byLearner(err error) bool {
	return err != nil && rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)
}

// conns maps a session's open connections to when they last received data.
type conns struct {
	mu    sync.Mutex
	open  map[*conn]time.Time
	dials atomic.Int64 // counter that selects the address to try first
}

type conn struct {
	net.Conn
	of *conns
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.open[c] = time.Now()
	}
	return n, err
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.open, c)
	return err
}

// If ctx has timed out, closeSilent closes connections that received nothing
// since sent. gRPC would keep them for over ten seconds.
func (cs *conns) closeSilent(ctx context.Context, sent time.Time, server net.Addr) {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c, heard := range cs.open {
		if heard.Before(sent) && (server == nil || server.String() == c.RemoteAddr().String()) {
			_ = c.Conn.Close()
		}
	}
}

// connect dials a server, at another of its addresses each time, because one
// may accept connections but never answer.
func (c *connector) connect(ctx context.Context, server string) (net.Conn, error) {
	first := server
	host, port, _ := net.SplitHostPort(server)
	if addrs, _ := c.settings.lookup(ctx, host); len(addrs) > 1 {
		first = net.JoinHostPort(addrs[c.conns.dials.Add(1)%int64(len(addrs))], port)
	}
	made, err := (&net.Dialer{Timeout: c.settings.requestTimeout() / 2}).DialContext(ctx, "tcp", first)
	if err != nil && first != server {
		made, err = new(net.Dialer).DialContext(ctx, "tcp", server)
	}
	if err != nil {
		return nil, err
	}
	known := &conn{made, c.conns}
	c.conns.mu.Lock()
	defer c.conns.mu.Unlock()
	c.conns.open[known] = time.Now()
	return known, nil
}
