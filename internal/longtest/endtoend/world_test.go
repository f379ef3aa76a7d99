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
	// bound is generous: it ends a test that hangs.
	bound = 30 * time.Second

	// quiet is a session timeout with which nothing is sent but what a test asks for.
	quiet = 10 * time.Minute
)

// world is a path of a test's own on the shared server, and a plain client that looks at it past the driver.
type world struct {
	testing.TB
	server *zktest.Server
	root   string
	raw    *zk.Conn
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOn(t, zktest.Shared(t))
}

func newWorldOn(t testing.TB, server *zktest.Server) *world {
	t.Helper()
	return &world{t, server, server.Chroot(t), zktest.Dial(t, quiet, server.Addr())}
}

func (w *world) dsn(addr, params string) string { return "zk://" + addr + w.root + "?" + params }

// client opens a client with a session of its own that sends no heartbeats while the test runs.
func (w *world) client(host string, opts ...dlock.Option) *dlock.Client {
	w.Helper()
	return w.open(w.dsn(w.server.Addr(), "session_timeout="+quiet.String()), host, opts...)
}

// proxied opens a client whose requests go through a proxy of its own.
func (w *world) proxied(host string, opts ...dlock.Option) (*dlock.Client, *zktest.Proxy) {
	w.Helper()
	p := zktest.NewProxy(w, w.server.Addr())
	return w.open(w.dsn(p.Addr(), "session_timeout="+quiet.String()), host, opts...), p
}

// open returns a client that has its session.
func (w *world) open(dsn, host string, opts ...dlock.Option) *dlock.Client {
	w.Helper()
	c, err := dlock.Open("zk", dsn, append([]dlock.Option{dlock.WithHostname(host)}, opts...)...)
	require.NoError(w, err)
	w.Cleanup(func() { c.Close() })
	require.NoError(w, c.Ping(w.soon()))
	return c
}

func (w *world) clients(n int) []*dlock.Client {
	w.Helper()
	clients := make([]*dlock.Client, n)
	for i := range clients {
		clients[i] = w.client(fmt.Sprintf("web%d", i))
	}
	return clients
}

// soon is a context that ends a call which hangs.
func (w *world) soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) path(queue string) string { return w.root + "/" + queue }

// nodes returns what is below a queue's node, by sequence.
func (w *world) nodes(queue string) []string {
	w.Helper()
	names, _, err := w.raw.Children(w.path(queue))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	require.NoError(w, err)
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	return names
}

// sequence returns the last ten characters.
func sequence(name string) string { return name[max(0, len(name)-10):] }

// listed waits until exactly these nodes are in the queue, in this order.
func (w *world) listed(queue string, names ...string) {
	w.Helper()
	w.eventually(func() bool { return slices.Equal(w.nodes(queue), names) },
		func() string { return fmt.Sprintf("%s holds %q and not %q", queue, w.nodes(queue), names) })
}

// eventually waits for a state, and tells what there is instead.
func (w *world) eventually(reached func() bool, instead func() string) {
	w.Helper()
	for end := time.Now().Add(bound); !reached(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(w, "not within "+bound.String(), instead())
		}
	}
}

// promptly demands a median below a limit, and nothing out of all proportion: a machine that is busy with
// something else may be late once in a while, but not most of the time.
func promptly(t testing.TB, limit time.Duration, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	median, slowest := took[len(took)/2], took[len(took)-1]
	t.Logf("median %v, slowest %v of %d", median, slowest, len(took))
	require.Less(t, median, limit)
	require.Less(t, slowest, 5*time.Second)
}

// remove deletes a node as an operator would.
func (w *world) remove(queue, name string) {
	w.Helper()
	require.NoError(w, w.raw.Delete(w.path(queue)+"/"+name, -1))
}

// removeQueue deletes a queue with all that is in it, at once.
func (w *world) removeQueue(queue string) {
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

func (w *world) missing(queue string) bool {
	w.Helper()
	there, _, err := w.raw.Exists(w.path(queue))
	require.NoError(w, err)
	return !there
}

// closes waits for a channel that is about to close.
func (w *world) closes(c <-chan struct{}, what string) {
	w.Helper()
	select {
	case <-c:
	case <-time.After(bound):
		require.FailNow(w, "not within "+bound.String(), what)
	}
}

// expire ends the session of the proxy's client on the server. The client has to be kept out meanwhile: it reconnects so
// fast that it would take the session back from the connection that is about to end it.
func (w *world) expire(p *zktest.Proxy) {
	w.Helper()
	p.Refuse()
	defer p.Heal()
	sessions := p.Sessions()
	last := sessions[len(sessions)-1]
	require.NoError(w, zktest.Expire(w.server.Addr(), last.ID, last.Passwd))
}

// ids returns the sessions that a proxy's client has had.
func ids(p *zktest.Proxy) map[int64]bool {
	seen := make(map[int64]bool)
	for _, s := range p.Sessions() {
		if s.ID != 0 {
			seen[s.ID] = true
		}
	}
	return seen
}

// contender is a call of Lock or RLock that goes on while the test does other things.
type contender struct {
	w      *world
	cancel context.CancelFunc
	done   chan struct{}
	lock   *dlock.Lock // set before done
	err    error       // likewise
	at     time.Time   // likewise: when it returned

	mu      sync.Mutex
	queued  []string              // the nodes it has had
	waiting []recipes.WaitingInfo // what it has waited for
}

// contend starts Lock or RLock.
func (w *world) contend(c *dlock.Client, queue string, mode dlock.Mode, opts ...dlock.Option) *contender {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	k := &contender{w: w, cancel: cancel, done: make(chan struct{})}
	m := c.RWMutex(queue, append(opts, dlock.WithTrace(&dlock.Trace{
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

// lock and rlock start a contender for the queue "q".
func (w *world) lock(c *dlock.Client) *contender  { return w.contend(c, "q", dlock.Exclusive) }
func (w *world) rlock(c *dlock.Client) *contender { return w.contend(c, "q", dlock.Shared) }

// granted waits until the call has won the lock.
func (k *contender) granted() *dlock.Lock {
	k.w.Helper()
	k.returned()
	require.NoError(k.w, k.err)
	require.NoError(k.w, k.lock.Err())
	return k.lock
}

// failed waits until the call has returned an error.
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

// waitsBehind waits until the call has looked at the queue and found that node in its way, and
// demands that it has not returned.
func (k *contender) waitsBehind(name string) {
	k.w.Helper()
	k.w.eventually(func() bool {
		last := k.lastWait()
		return last.Predecessor == name && last.Node == k.node()
	}, func() string { return fmt.Sprintf("%s waits for %+v and not for %s", k.node(), k.lastWait(), name) })
	k.waits()
}

// waits demands that the call has not returned.
func (k *contender) waits() {
	k.w.Helper()
	select {
	case <-k.done:
		require.FailNow(k.w, "the call has returned", "lock %v, error %v", k.lock, k.err)
	default:
	}
}

// node returns the name of the node that it has now, or had last.
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

func (w *world) unlock(locks ...*dlock.Lock) {
	w.Helper()
	for _, l := range locks {
		require.NoError(w, l.Unlock())
	}
}

// lost waits until the lock knows that it was lost.
func (w *world) lost(l *dlock.Lock) {
	w.Helper()
	w.closes(l.Lost(), "the loss of "+l.Node())
	require.ErrorIs(w, l.Err(), dlock.ErrLost)
}

// errs collects what goes wrong on goroutines.
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

// referee watches who is inside, and that exclusive tokens rise.
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
