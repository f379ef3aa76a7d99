package etcddriver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/balancer"
)

// wheel offers its servers in turn.
type wheel struct {
	servers []balancer.SubConn
	turn    int
}

func (w *wheel) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	w.turn++
	return balancer.PickResult{SubConn: w.servers[w.turn%len(w.servers)]}, nil
}

// With two servers, the list after each watch would bring round robin back to the
// server of the stream that did not keep up.
func TestAStreamForWatchesBeginsAtAnotherServer(t *testing.T) {
	type server struct {
		balancer.SubConn
		_ byte // so that no two have one address
	}
	two := []balancer.SubConn{new(server), new(server)}
	for _, offered := range [][]balancer.SubConn{two, two[:1]} {
		p := picker{&wheel{servers: offered}, &servers{silent: make(map[balancer.SubConn]time.Time)}}
		pick := func(method string) balancer.SubConn {
			picked, err := p.Pick(balancer.PickInfo{FullMethodName: method})
			require.NoError(t, err)
			return picked.SubConn
		}
		last := pick(watchMethod)
		for range 4 {
			pick("/etcdserverpb.KV/Range")
			next := pick(watchMethod)
			require.Equal(t, len(offered) == 1, last == next)
			last = next
		}
	}
}
