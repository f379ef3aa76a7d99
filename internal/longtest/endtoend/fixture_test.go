package endtoend_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/recipes"
	_ "github.com/dlock-go/dlock/zkdriver"
)

const (
	// bound is the timeout of every wait. Only a failure takes that long.
	bound = 30 * time.Second

	// quiet is a session timeout so long that no heartbeat disturbs the
	// count of requests.
	quiet = 10 * time.Minute
)

// fixture gives a test its own path on the shared server.
type fixture struct {
	testing.TB
	server *zktest.Server
	root   string
	raw    *zk.Conn
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newFixtureOn(t, zktest.Shared(t))
}

func newFixtureOn(t testing.TB, server *zktest.Server) *fixture {
	t.Helper()
	return &fixture{t, server, server.Chroot(t), zktest.Dial(t, quiet, server.Addr())}
}

func (w *fixture) dsn(addr, params string) string {
	return "zk://" + addr + w.root + "?session_timeout=" + quiet.String() + params
}

func (w *fixture) client(host, params string, opts ...dlock.Option) *dlock.Client {
	w.Helper()
	return w.open(w.dsn(w.server.Addr(), params), host, opts...)
}

func (w *fixture) proxied(host, params string) (*dlock.Client, *zktest.Proxy) {
	w.Helper()
	p := zktest.NewProxy(w, w.server.Addr())
	return w.open(w.dsn(p.Addr(), params), host), p
}

func (w *fixture) open(dsn, host string, opts ...dlock.Option) *dlock.Client {
	w.Helper()
	c, err := dlock.Open("zk", dsn, append([]dlock.Option{dlock.WithHostname(host)}, opts...)...)
	require.NoError(w, err)
	w.Cleanup(func() { c.Close() })
	require.NoError(w, c.Ping(w.soon()))
	return c
}

func (w *fixture) clients(n int, params string) []*dlock.Client {
	w.Helper()
	clients := make([]*dlock.Client, n)
	for i := range clients {
		clients[i] = w.client(fmt.Sprintf("web%d", i), params)
	}
	return clients
}

// soon keeps a hanging call from blocking the test.
func (w *fixture) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	w.Cleanup(cancel)
	return ctx
}

func (w *fixture) path(queue string) string { return w.root + "/" + queue }

func (w *fixture) nodes(queue string) []string {
	w.Helper()
	names, _, err := w.raw.Children(w.path(queue))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	require.NoError(w, err)
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	return names
}

func sequence(name string) string { return name[max(0, len(name)-10):] }

func (w *fixture) listed(queue string, names ...string) {
	w.Helper()
	w.eventually(func() bool { return slices.Equal(w.nodes(queue), names) },
		func() string { return fmt.Sprintf("%s holds %q and not %q", queue, w.nodes(queue), names) })
}

// eventually waits until reached() is true, or fails the test with instead().
func (w *fixture) eventually(reached func() bool, instead func() string) {
	w.Helper()
	for end := time.Now().Add(bound); !reached(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(w, "not within "+bound.String(), instead())
		}
	}
}

func (w *fixture) watched(before, more int64) {
	w.Helper()
	w.eventually(func() bool { return w.server.Watches() == before+more },
		func() string { return fmt.Sprintf("%d watches and not %d", w.server.Watches()-before, more) })
}

func (w *fixture) made(queue string) {
	w.Helper()
	_, err := w.raw.Create(w.path(queue), nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
}

// plant creates a persistent node, as an attacker could.
func (w *fixture) plant(queue, name string, data []byte) {
	w.Helper()
	_, err := w.raw.Create(w.path(queue)+"/"+name, data, 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err, "%.100q", name)
}

func (w *fixture) remove(queue, name string) {
	w.Helper()
	require.NoError(w, w.raw.Delete(w.path(queue)+"/"+name, -1))
}

// contender is a Lock or RLock call that runs in its own goroutine.
type contender struct {
	w    *fixture
	done chan struct{}
	lock *dlock.Lock // set before done is closed
	err  error       // set before done is closed

	mu   sync.Mutex
	node string              // the last node of the call
	wait recipes.WaitingInfo // the last wait of the call
}

func (w *fixture) contend(c *dlock.Client, queue string, mode dlock.Mode, opts ...dlock.Option) *contender {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	k := &contender{w: w, done: make(chan struct{})}
	m := c.RWMutex(queue, append(opts, dlock.WithTrace(&recipes.Trace{
		Queued: func(_ context.Context, i recipes.QueuedInfo) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.node = i.Place.Name
		},
		Waiting: func(_ context.Context, i recipes.WaitingInfo) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.wait = i
		},
	}))...)
	go func() {
		defer close(k.done)
		k.lock, k.err = entering(m, mode)(ctx)
	}()
	w.Cleanup(func() {
		cancel()
		<-k.done
	})
	return k
}

func entering(m *dlock.RWMutex, mode dlock.Mode) func(context.Context) (*dlock.Lock, error) {
	if mode == dlock.Shared {
		return m.RLock
	}
	return m.Lock
}

func (w *fixture) lock(c *dlock.Client) *contender  { return w.contend(c, "q", dlock.Exclusive) }
func (w *fixture) rlock(c *dlock.Client) *contender { return w.contend(c, "q", dlock.Shared) }

func (k *contender) granted() *dlock.Lock {
	k.w.Helper()
	select {
	case <-k.done:
	case <-time.After(bound):
		node, wait := k.last()
		require.FailNow(k.w, "the call has not returned", "its node: %q, it waits for %+v; in the queue: %q", node, wait, k.w.nodes("q"))
	}
	require.NoError(k.w, k.err)
	require.NoError(k.w, k.lock.Err())
	return k.lock
}

func (k *contender) waitsBehind(name string) {
	k.w.Helper()
	k.w.eventually(func() bool {
		node, wait := k.last()
		return wait.Predecessor == name && wait.Node == node
	}, func() string {
		node, wait := k.last()
		return fmt.Sprintf("%s waits for %+v and not for %s", node, wait, name)
	})
	k.waits()
}

func (k *contender) waits() {
	k.w.Helper()
	if k.over() {
		require.FailNow(k.w, "the call has returned", "lock %v, error %v", k.lock, k.err)
	}
}

func (k *contender) over() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

func (k *contender) last() (node string, wait recipes.WaitingInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node, k.wait
}

func (w *fixture) unlock(locks ...*dlock.Lock) {
	w.Helper()
	for _, l := range locks {
		require.NoError(w, release(l))
	}
}

// release tolerates ErrUnavailable after 2 s, which a slow machine may cause.
func release(l *dlock.Lock) error {
	began := time.Now()
	err := l.Unlock()
	if errors.Is(err, dlock.ErrUnavailable) && time.Since(began) >= 2*time.Second {
		return nil
	}
	return err
}
