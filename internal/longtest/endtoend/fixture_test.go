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
	// bound is the timeout of every wait in a test. Only a failure takes
	// that long.
	bound = 30 * time.Second

	// quiet is a session timeout so long that no heartbeat disturbs the
	// count of requests.
	quiet = 10 * time.Minute
)

// fixture gives a test its own path on the shared server, and a plain ZooKeeper
// client to inspect it.
type fixture struct {
	testing.TB
	server *zktest.Server
	root   string
	raw    *zk.Conn
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return newWorldOn(t, zktest.Shared(t))
}

func newWorldOn(t testing.TB, server *zktest.Server) *fixture {
	t.Helper()
	return &fixture{t, server, server.Chroot(t), zktest.Dial(t, quiet, server.Addr())}
}

func (w *fixture) dsn(addr, params string) string { return "zk://" + addr + w.root + "?" + params }

func (w *fixture) client(host string, opts ...dlock.Option) *dlock.Client {
	w.Helper()
	return w.open(w.dsn(w.server.Addr(), "session_timeout="+quiet.String()), host, opts...)
}

func (w *fixture) proxied(host string, opts ...dlock.Option) (*dlock.Client, *zktest.Proxy) {
	w.Helper()
	p := zktest.NewProxy(w, w.server.Addr())
	return w.open(w.dsn(p.Addr(), "session_timeout="+quiet.String()), host, opts...), p
}

// open opens a client and waits for its session. The client is closed when the
// test ends.
func (w *fixture) open(dsn, host string, opts ...dlock.Option) *dlock.Client {
	w.Helper()
	c, err := dlock.Open("zk", dsn, append([]dlock.Option{dlock.WithHostname(host)}, opts...)...)
	require.NoError(w, err)
	w.Cleanup(func() { c.Close() })
	require.NoError(w, c.Ping(w.soon()))
	return c
}

func (w *fixture) clients(n int) []*dlock.Client {
	w.Helper()
	clients := make([]*dlock.Client, n)
	for i := range clients {
		clients[i] = w.client(fmt.Sprintf("web%d", i))
	}
	return clients
}

// soon returns a context with a generous timeout, so that a hanging call fails
// the test instead of blocking it.
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

// listed waits until the queue holds exactly these nodes, in this order.
func (w *fixture) listed(queue string, names ...string) {
	w.Helper()
	w.eventually(func() bool { return slices.Equal(w.nodes(queue), names) },
		func() string { return fmt.Sprintf("%s holds %q and not %q", queue, w.nodes(queue), names) })
}

// eventually polls the function reached until it returns true. After the time
// bound, it fails the test with the message that the function instead returns.
func (w *fixture) eventually(reached func() bool, instead func() string) {
	w.Helper()
	for end := time.Now().Add(bound); !reached(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(w, "not within "+bound.String(), instead())
		}
	}
}

// requirePrompt requires that the median of took is below limit. It tolerates
// outliers of up to 5 s, because the machine may be busy.
func requirePrompt(t testing.TB, limit time.Duration, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	median, slowest := took[len(took)/2], took[len(took)-1]
	t.Logf("median %v, slowest %v of %d", median, slowest, len(took))
	require.Less(t, median, limit)
	require.Less(t, slowest, 5*time.Second)
}

// remove deletes a node as an operator would.
func (w *fixture) remove(queue, name string) {
	w.Helper()
	require.NoError(w, w.raw.Delete(w.path(queue)+"/"+name, -1))
}

// removeQueue deletes a queue and all its nodes in one transaction.
func (w *fixture) removeQueue(queue string) {
	w.Helper()
	w.eventually(func() bool {
		var ops []any
		for _, name := range w.nodes(queue) {
			ops = append(ops, &zk.DeleteRequest{Path: w.path(queue) + "/" + name, Version: -1})
		}
		_, err := w.raw.Multi(append(ops, &zk.DeleteRequest{Path: w.path(queue), Version: -1})...)
		return err == nil || errors.Is(err, zk.ErrNoNode) && w.missing(queue)
	}, func() string { return "the queue keeps changing" })
}

func (w *fixture) missing(queue string) bool {
	w.Helper()
	there, _, err := w.raw.Exists(w.path(queue))
	require.NoError(w, err)
	return !there
}

// closes waits until the channel c is closed. After the time bound, it fails
// the test with the message in what.
func (w *fixture) closes(c <-chan struct{}, what string) {
	w.Helper()
	select {
	case <-c:
	case <-time.After(bound):
		require.FailNow(w, "not within "+bound.String(), what)
	}
}

// expire makes the server expire a client's session. It refuses connections
// meanwhile, because a quick reconnect would keep the session alive.
func (w *fixture) expire(p *zktest.Proxy) {
	w.Helper()
	p.Refuse()
	defer p.Heal()
	sessions := p.Sessions()
	last := sessions[len(sessions)-1]
	require.NoError(w, zktest.Expire(w.server.Addr(), last.ID, last.Passwd))
}

// ids returns the IDs of all sessions that have used the proxy.
func ids(p *zktest.Proxy) map[int64]bool {
	seen := make(map[int64]bool)
	for _, s := range p.Sessions() {
		if s.ID != 0 {
			seen[s.ID] = true
		}
	}
	return seen
}

// contender is a Lock or RLock call that runs in its own goroutine.
type contender struct {
	w      *fixture
	cancel context.CancelFunc
	done   chan struct{}
	lock   *dlock.Lock // set before done is closed
	err    error       // set before done is closed
	at     time.Time   // when the call returned; set before done is closed

	mu      sync.Mutex
	queued  []string              // all nodes of the call
	waiting []recipes.WaitingInfo // all waits of the call, in order
}

// contend starts a Lock or RLock call in a goroutine and cancels it when the
// test ends.
func (w *fixture) contend(c *dlock.Client, queue string, mode dlock.Mode, opts ...dlock.Option) *contender {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	k := &contender{w: w, cancel: cancel, done: make(chan struct{})}
	m := c.RWMutex(queue, append(opts, dlock.WithTrace(&recipes.Trace{
		Queued: func(_ context.Context, i recipes.QueuedInfo) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.queued = append(k.queued, i.Place.Name)
		},
		Waiting: func(_ context.Context, i recipes.WaitingInfo) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.waiting = append(k.waiting, i)
		},
	}))...)
	enter := m.Lock
	if mode == dlock.Shared {
		enter = m.RLock
	}
	go func() {
		defer close(k.done)
		k.lock, k.err = enter(ctx)
		k.at = time.Now()
	}()
	w.Cleanup(func() {
		cancel()
		<-k.done
	})
	return k
}

// lock and rlock contend for the lock "q".
func (w *fixture) lock(c *dlock.Client) *contender  { return w.contend(c, "q", dlock.Exclusive) }
func (w *fixture) rlock(c *dlock.Client) *contender { return w.contend(c, "q", dlock.Shared) }

func (k *contender) granted() *dlock.Lock {
	k.w.Helper()
	k.returned()
	require.NoError(k.w, k.err)
	require.NoError(k.w, k.lock.Err())
	return k.lock
}

func (k *contender) failed() error {
	k.w.Helper()
	k.returned()
	require.Error(k.w, k.err)
	require.Nil(k.w, k.lock)
	return k.err
}

func (k *contender) returned() {
	k.w.Helper()
	select {
	case <-k.done:
	case <-time.After(bound):
		require.FailNow(k.w, "the call has not returned", "its nodes: %q, it waited for %+v; in the queue: %q", k.nodes(), k.lastWait(), k.w.nodes("q"))
	}
}

// waitsBehind waits until the call is blocked by the named node.
func (k *contender) waitsBehind(name string) {
	k.w.Helper()
	k.w.eventually(func() bool {
		last := k.lastWait()
		return last.Predecessor == name && last.Node == k.node()
	}, func() string { return fmt.Sprintf("%s waits for %+v and not for %s", k.node(), k.lastWait(), name) })
	k.waits()
}

// waits requires that the call is still waiting.
func (k *contender) waits() {
	k.w.Helper()
	select {
	case <-k.done:
		require.FailNow(k.w, "the call has returned", "lock %v, error %v", k.lock, k.err)
	default:
	}
}

func (k *contender) node() string {
	if nodes := k.nodes(); len(nodes) > 0 {
		return nodes[len(nodes)-1]
	}
	return ""
}

func (k *contender) nodes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.queued)
}

func (k *contender) lastWait() recipes.WaitingInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.waiting) == 0 {
		return recipes.WaitingInfo{}
	}
	return k.waiting[len(k.waiting)-1]
}

func (w *fixture) unlock(locks ...*dlock.Lock) {
	w.Helper()
	for _, l := range locks {
		require.NoError(w, release(l))
	}
}

// release unlocks l. It tolerates the error ErrUnavailable, with which Unlock
// gives up after 2 s, because the machine may be slow.
func release(l *dlock.Lock) error {
	began := time.Now()
	err := l.Unlock()
	if errors.Is(err, dlock.ErrUnavailable) && time.Since(began) >= 2*time.Second {
		return nil
	}
	return err
}

func (w *fixture) lost(l *dlock.Lock) {
	w.Helper()
	w.closes(l.Lost(), "the loss of "+l.Node())
	require.ErrorIs(w, l.Err(), dlock.ErrLost)
}

type errs struct {
	mu  sync.Mutex
	all []error
}

func (e *errs) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Errorf(format, args...))
}

func (e *errs) none(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	require.NoError(t, errors.Join(e.all...))
}

// referee counts the simultaneous holders of a lock. It reports conflicting
// holders, and exclusive tokens that do not increase.
type referee struct {
	errs
	state     sync.Mutex
	exclusive int
	shared    int
	token     int64
	entries   int
}

func (r *referee) enter(l *dlock.Lock) {
	r.state.Lock()
	defer r.state.Unlock()
	r.entries++
	if l.Mode() == dlock.Shared {
		r.shared++
		if l.Token() < r.token {
			r.add("%s: shared token %d after exclusive %d", l.Node(), l.Token(), r.token)
		}
	} else {
		r.exclusive++
		if l.Token() <= r.token {
			r.add("%s: token %d after %d", l.Node(), l.Token(), r.token)
		}
		r.token = l.Token()
	}
	if r.exclusive > 1 || r.exclusive == 1 && r.shared > 0 {
		r.add("%s: %d hold exclusively and %d shared", l.Node(), r.exclusive, r.shared)
	}
}

func (r *referee) leave(l *dlock.Lock) {
	r.state.Lock()
	defer r.state.Unlock()
	if l.Mode() == dlock.Shared {
		r.shared--
	} else {
		r.exclusive--
	}
}
