package etcddriver

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/internal/etcdtest"
)

type wheel struct {
	servers []balancer.SubConn
	turn    int
}

func (w *wheel) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	w.turn++
	return balancer.PickResult{SubConn: w.servers[w.turn%len(w.servers)]}, nil
}

// Plain round robin over two servers would open each new stream at the same
// one.
func TestAStreamForWatchesBeginsAtAnotherServer(t *testing.T) {
	type server struct {
		balancer.SubConn
		_ byte // nonzero size makes new return distinct pointers
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

// errOutOfTime is the reply of a follower whose own time limit expires first.
var errOutOfTime = status.Error(codes.Unknown, context.DeadlineExceeded.Error())

func TestAServerThatAnswersTooLateIsAvoided(t *testing.T) {
	type server struct {
		balancer.SubConn
		_ byte // nonzero size makes new return distinct pointers
	}
	late, other := new(server), new(server)
	p := picker{&wheel{servers: []balancer.SubConn{late, other}}, &servers{silent: make(map[balancer.SubConn]time.Time)}}
	picked := 0
	for range 6 {
		got, err := p.Pick(balancer.PickInfo{FullMethodName: "/etcdserverpb.Lease/LeaseGrant"})
		require.NoError(t, err)
		if got.SubConn == late {
			picked++
			got.Done(balancer.DoneInfo{Err: errOutOfTime, BytesReceived: true})
		} else {
			got.Done(balancer.DoneInfo{BytesReceived: true})
		}
	}
	require.Equal(t, 1, picked)
}

func TestASessionBeginsAtAnotherServerIfOneAnswersTooLate(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	var late atomic.Int64
	connectTo(t, "etcd://"+server.Addr()+","+server.Addr()+"/"+server.Prefix()+"?"+longSession, intercepted(func(request, _ any, send func() error) error {
		if _, ok := request.(*pb.LeaseGrantRequest); ok && late.Add(1) == 1 {
			return errOutOfTime
		}
		return send()
	}))
	require.EqualValues(t, 2, late.Load())
}
