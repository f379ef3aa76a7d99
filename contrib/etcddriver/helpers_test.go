package etcddriver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/etcdtest"
)

// within returns a context with a timeout that no passing test reaches.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 60*time.Second, 5*time.Millisecond)
}

func (s *store) client(t testing.TB) *dlock.Client {
	t.Helper()
	c := dlock.NewClient(s)
	require.NoError(t, c.Ping(within(t)))
	t.Cleanup(func() { require.NoError(t, c.Close()) }) // runs before the proxy is closed
	return c
}

type opened struct {
	*session.Session
	b *backend
}

func inside(s driver.Session) opened {
	made := s.(*session.Session)
	return opened{made, made.Store().(*backend)}
}

func beat(ctx context.Context, s opened) error {
	_, err := s.b.Beat(ctx)
	return err
}

func connectTo(t testing.TB, dsn string, dial ...grpc.DialOption) opened {
	t.Helper()
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	c.(*connector).dial = dial
	s, err := c.Connect(within(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return inside(s)
}

func connect(t testing.TB) opened {
	t.Helper()
	return connectThrough(t, func(_, _ any, send func() error) error { return send() })
}

func linked(t *testing.T) (opened, *link) {
	t.Helper()
	st := newStore(t, etcdtest.Shared(t), longSession)
	made, err := st.Connect(within(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = made.Close() })
	return inside(made), st.link(made)
}

func (s opened) has(t *testing.T, want ...driver.Node) {
	t.Helper()
	nodes, err := s.List(within(t), "q")
	require.NoError(t, err)
	require.Equal(t, want, nodes)
}

// follow watches a queue during the test, so that Delete announces releases.
func (s opened) follow(t *testing.T, queue string) driver.Watch {
	t.Helper()
	w, err := s.WatchQueue(within(t), queue)
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	return w
}

// connectThrough begins a session whose requests all go through intercept, some
// concurrently.
func connectThrough(t testing.TB, intercept func(request, reply any, send func() error) error) opened {
	t.Helper()
	server := etcdtest.Shared(t)
	return connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix()+"?"+longSession, intercepted(intercept))
}

func intercepted(intercept func(request, reply any, send func() error) error) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return intercept(request, reply, func() error { return invoke(ctx, method, request, reply, conn, opts...) })
	})
}

// create creates a node, retrying requests that time out on a slow machine.
func create(t testing.TB, s driver.Session, queue, prefix string) driver.Joined {
	t.Helper()
	for {
		began := time.Now()
		j, err := s.Create(within(t), queue, driver.NodeSpec{Prefix: prefix, Data: []byte(prefix + "data")})
		if errors.Is(err, driver.ErrUnavailable) && time.Since(began) >= time.Second {
			continue
		}
		require.NoError(t, err)
		return j
	}
}
