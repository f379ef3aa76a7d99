package etcddriver

import (
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/codes"
)

func init() { balancer.Register(answering{}) }

// answering is a gRPC balancer that does round robin but avoids unresponsive
// servers. Plain round robin would keep sending requests to a hung server,
// because the connection to it stays open.
type answering struct{}

// Name implements [balancer.Builder].
func (answering) Name() string { return "dlock_answering" }

// Build implements [balancer.Builder].
func (answering) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return balancer.Get(roundrobin.Name).Build(&servers{ClientConn: cc, silent: make(map[balancer.SubConn]time.Time)}, opts)
}

// balanced returns dial options for the load balancer of type answering. It
// replaces the default balancer of the etcd client.
func balanced() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + answering{}.Name() + `": {}}]}`),
	}
}

const (
	watchMethod     = "/etcdserverpb.Watch/Watch"
	keepAliveMethod = "/etcdserverpb.Lease/LeaseKeepAlive"
)

// silentFor is how long a client avoids a server that has left a request
// unanswered.
const silentFor = time.Minute

// servers tracks which servers of a client are unresponsive.
type servers struct {
	balancer.ClientConn

	mu      sync.Mutex
	silent  map[balancer.SubConn]time.Time // when to try the server again
	watches balancer.SubConn               // server of the latest stream for watches
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

// Pick implements [balancer.Picker]. It picks an unresponsive server only if
// there is no alternative.
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

// avoids reports whether another server is preferable. A new stream for watches
// must not go to the server of the previous stream, which may have fallen
// behind.
func (s *servers) avoids(server balancer.SubConn, method string) bool {
	return time.Now().Before(s.silent[server]) || method == watchMethod && server == s.watches
}

// done records whether the server answered. A cancelled heartbeat stream counts
// as unanswered, because it is cancelled only when a reply is overdue.
func (s *servers) done(server balancer.SubConn, method string, done balancer.DoneInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := code(done.Err)
	givenUp := c == codes.Canceled || c == codes.DeadlineExceeded
	switch {
	case method == watchMethod:
	case givenUp && (!done.BytesReceived || method == keepAliveMethod), outOfTime(done.Err):
		now := time.Now()
		maps.DeleteFunc(s.silent, func(_ balancer.SubConn, until time.Time) bool { return until.Before(now) })
		s.silent[server] = now.Add(silentFor)
	case done.BytesReceived:
		delete(s.silent, server)
	}
}
