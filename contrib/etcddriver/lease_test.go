package etcddriver

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock/internal/etcdtest"
)

// If the answer to the grant of a lease is late, the term of the lease has
// begun long before. So the driver must count the term from before the request,
// or it would believe in the lease for too long.
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
			time.Sleep(3500 * time.Millisecond) // more than the term of the lease
			answered = time.Now()
		}
		return err
	})}
	_, err = c.Connect(within(t))
	require.False(t, answered.IsZero())
	require.ErrorContains(t, err, "the reply came too late")
}

// The proof in heartbeat.go needs answers of the same term.
func TestAKeepAliveOfAnOldTermDoesNotCount(t *testing.T) {
	var newer atomic.Bool
	s := connectThrough(t, func(_, reply any, send func() error) error {
		err := send()
		if r, ok := reply.(*pb.RangeResponse); ok && err == nil && newer.Load() {
			r.Header.RaftTerm++
		}
		return err
	})
	require.NoError(t, s.beat(within(t)))
	newer.Store(true)
	require.Error(t, s.beat(within(t)))
}

// If an old backup is restored, the revision of the store goes back. The nodes of a
// session may be missing, and its watches wait for revisions that are far away.
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
	require.NoError(t, s.beat(within(t)))
	back.Store(1 << 40)
	require.Error(t, s.beat(within(t)))
	require.ErrorIs(t, s.Err(), errRestored)
}
