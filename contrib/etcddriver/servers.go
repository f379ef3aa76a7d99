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

// answering is gRPC's round robin without the servers that have fallen silent.
//
// A connection stays open while its server is hung, or while a follower cannot
// write to its disk. Plain round robin would send every n-th request of a client
// of n servers there, and each of these would take the whole time that a request
// may take.
type answering struct{}

// Name implements balancer.Builder.
func (answering) Name() string { return "dlock_answering" }

// Build implements balancer.Builder.
func (answering) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return balancer.Get(roundrobin.Name).Build(&servers{ClientConn: cc, silent: make(map[balancer.SubConn]time.Time)}, opts)
}

// balanced makes a client use answering, and not what etcd's resolver asks for.
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

// silentFor is how long a client avoids a server that has left a request without
// an answer. After that, a request tries the server again.
const silentFor = time.Minute

// servers knows which servers of a client are silent.
type servers struct {
	balancer.ClientConn

	mu      sync.Mutex
	silent  map[balancer.SubConn]time.Time // until when to avoid the server
	watches balancer.SubConn               // the server of the latest stream for watches
}

// UpdateState implements balancer.ClientConn.
func (s *servers) UpdateState(state balancer.State) {
	state.Picker = picker{state.Picker, s}
	s.ClientConn.UpdateState(state)
}

type picker struct {
	roundRobin balancer.Picker
	*servers
}

// Pick implements balancer.Picker. It picks a silent server only if round robin
// offers no other one.
func (p picker) Pick(info balancer.PickInfo) (picked balancer.PickResult, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 2 + 2*len(p.silent) { // other calls may turn the wheel meanwhile
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

// avoids reports whether another server would be better. A session replaces its
// stream for watches because that stream does not keep up, so the next one goes
// elsewhere.
func (s *servers) avoids(server balancer.SubConn, method string) bool {
	return time.Now().Before(s.silent[server]) || method == watchMethod && server == s.watches
}

// done takes note of whether the server has answered. A session gives a stream of
// heartbeats up only if an answer is missing.
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
