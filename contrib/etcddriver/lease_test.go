package etcddriver

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock/internal/etcdtest"
)

// The reply to a lease grant may arrive long after etcd granted the lease.
func TestTheLeaseCountsFromBeforeTheGrant(t *testing.T) {
	server := etcdtest.Shared(t)
	opened, err := Driver{}.OpenConnector("etcd://" + server.Addr() + "/" + server.Prefix() + "?session_timeout=4s")
	require.NoError(t, err)
	c := opened.(*connector)
	var answered time.Time
	c.dial = []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, request, reply, conn, opts...)
		if _, grant := request.(*pb.LeaseGrantRequest); grant && err == nil {
			time.Sleep(3500 * time.Millisecond) // the lease counts as expired after 3 s
			answered = time.Now()
		}
		return err
	})}
	_, err = c.Connect(within(t))
	require.False(t, answered.IsZero())
	require.ErrorContains(t, err, "the reply came too late")
}

// A deposed leader may have answered the keep-alive.
func TestAKeepAliveOfAnOldTermDoesNotCount(t *testing.T) {
	var newer atomic.Bool
	s := connectThrough(t, func(_, reply any, send func() error) error {
		err := send()
		if r, ok := reply.(*pb.RangeResponse); ok && err == nil && newer.Load() {
			r.Header.RaftTerm++
		}
		return err
	})
	require.NoError(t, beat(within(t), s))
	newer.Store(true)
	require.Error(t, beat(within(t), s))
}

// Old data could grant a lock twice, so all reads must be linearizable.
func TestNoReadMayBeOld(t *testing.T) {
	var reads sync.Map // set of {CountOnly, KeysOnly, has a range}
	s := connectThrough(t, func(request, _ any, send func() error) error {
		if r, ok := request.(*pb.RangeRequest); ok {
			reads.Store([3]bool{r.CountOnly, r.KeysOnly, r.RangeEnd != nil}, nil)
			assert.False(t, r.Serializable, "%v", r)
		}
		return send()
	})
	j := create(t, s, "q", "h-W-")
	require.NoError(t, beat(within(t), s))
	_, err := s.List(within(t), "q")
	require.NoError(t, err)
	_, err = s.Read(within(t), "q", j.Name)
	require.NoError(t, err)
	_, err = s.Walk(within(t), "")
	require.NoError(t, err)
	// These are the kinds of reads that a heartbeat, List and Walk make.
	for _, kind := range [][3]bool{{true, false, false}, {false, false, true}, {false, true, true}} {
		_, found := reads.Load(kind)
		require.True(t, found, "%v", kind)
	}
}

// A restored backup sets etcd's revision back, and may lack the session's
// nodes.
func TestASessionEndsIfTheRevisionGoesBack(t *testing.T) {
	var back atomic.Int64
	s := connectThrough(t, func(_, reply any, send func() error) error {
		err := send()
		if r, ok := reply.(*pb.RangeResponse); ok && err == nil {
			r.Header.Revision -= back.Load()
		}
		return err
	})
	create(t, s, "q", "h-W-")
	require.NoError(t, beat(within(t), s))
	back.Store(1 << 40)
	require.ErrorIs(t, beat(within(t), s), errRestored)
}
