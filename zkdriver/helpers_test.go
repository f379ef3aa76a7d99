package zkdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

const bound = 30 * time.Second

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// lives repeats a test with a longer timeout if the session ends early.
func lives(t testing.TB, timeout time.Duration, try func(timeout time.Duration) error) {
	t.Helper()
	for longest := 4 * timeout; ; timeout *= 2 {
		err := try(timeout)
		if err == nil {
			return
		}
		if !errors.Is(err, driver.ErrSessionEnded) || timeout >= longest {
			t.Fatalf("session timeout %v: %v", timeout, err)
		}
		t.Logf("session timeout %v, once more: %v", timeout, err)
	}
}

func heartbeats(t testing.TB, s *session, n int, sent func() int) {
	t.Helper()
	for before, more := sent(), 1; more <= n; more++ {
		eventually(t, "another heartbeat", func() bool { return s.Err() != nil || sent() >= before+more })
	}
}

func closed(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(bound):
		t.Fatalf("not within %v: %s", bound, what)
	}
}

func dsnConnect(t testing.TB, dsn string) (*session, error) {
	t.Helper()
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	s, err := c.Connect(within(t))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { s.Close() })
	return s.(*session), nil
}

func mustConnect(t testing.TB, dsn string) *session {
	t.Helper()
	s, err := dsnConnect(t, dsn)
	require.NoError(t, err)
	return s
}

// fixture is a session that connects through its own proxy.
type fixture struct {
	*session
	t      testing.TB
	server *zktest.Server
	proxy  *zktest.Proxy
	raw    *zk.Conn
	chroot string
}

func newFixture(t testing.TB, params string) *fixture {
	t.Helper()
	server := zktest.Shared(t)
	b := &fixture{t: t, server: server, chroot: server.Chroot(t), raw: server.Raw(t)}
	b.proxy = zktest.NewProxy(t, server.Addr())
	b.session = mustConnect(t, "zk://"+b.proxy.Addr()+b.chroot+"?"+params)
	return b
}

func (b *fixture) another(params string) *session {
	b.t.Helper()
	return mustConnect(b.t, "zk://"+b.server.Addr()+b.chroot+"?"+params)
}

func (b *fixture) expire() error {
	b.proxy.Refuse() // otherwise the session would reconnect before it expires
	defer b.proxy.Heal()
	return zktest.Expire(b.server.Addr(), b.conn.SessionID(), nil)
}

func (b *fixture) mustCreate(queue, prefix, data string) driver.Place {
	b.t.Helper()
	p, err := create(within(b.t), b, queue, prefix, []byte(data))
	require.NoError(b.t, err)
	return p
}

func (b *fixture) nodes(queue string) []string {
	b.t.Helper()
	names, _, err := b.raw.Children(b.chroot + "/" + queue)
	if err == zk.ErrNoNode {
		return nil
	}
	require.NoError(b.t, err)
	return names
}

// requests counts requests, except heartbeats and those of a reconnect.
func (b *fixture) requests() int {
	return b.proxy.Requests() - b.proxy.Frames(zktest.OpSync) - b.proxy.Frames(zktest.OpAuth) - b.proxy.Frames(zktest.OpSetWatches)
}

func create(ctx context.Context, s driver.Session, queue, prefix string, data []byte) (driver.Place, error) {
	j, err := s.Create(ctx, queue, driver.NodeSpec{Prefix: prefix, Data: data})
	return j.Place, err
}

func watchName(ctx context.Context, s driver.Session, queue, name string) (<-chan driver.Cause, error) {
	if name == "" {
		w, err := s.WatchQueue(ctx, queue)
		return w.C, err
	}
	return watchPlace(ctx, s, queue, driver.Place{Node: driver.Node{Name: name}})
}

func watchPlace(ctx context.Context, s driver.Session, queue string, p driver.Place) (<-chan driver.Cause, error) {
	w, err := s.Watch(ctx, queue, p)
	return w.C, err
}

func waitFor(ctx context.Context, s driver.Session, queue, ahead string) (<-chan driver.Cause, error) {
	own, err := create(ctx, s, queue, "waiter-W-", []byte(rand.Text()))
	if err != nil {
		return nil, err
	}
	w, err := s.Watch(ctx, queue, own, driver.Node{Name: ahead})
	return w.C, err
}
