package recipes_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// world is a test's in-memory store in virtual time, with fault injection.
type world struct {
	*testing.T
	store *memdriver.Store
}

// inWorld runs f in virtual time and checks that f leaves nothing in the store.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	inWorldOf(t, func() *memdriver.Store { return memdriver.New() }, f)
}

func inWorldOf(t *testing.T, store func() *memdriver.Store, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: store()}
		t.Cleanup(func() {
			synctest.Wait()
			s := w.store.Stats()
			require.Zero(t, s.Nodes, "nodes left in the store")
			require.Zero(t, s.Watches, "watches left in the store")
			require.Zero(t, s.Sessions, "sessions left in the store")
		})
		f(w)
	})
}

type connectorFunc func(context.Context) (driver.Session, error)

func (f connectorFunc) Connect(ctx context.Context) (driver.Session, error) { return f(ctx) }

func wrapped(c driver.Connector, f func(driver.Session) driver.Session) driver.Connector {
	return connectorFunc(func(ctx context.Context) (driver.Session, error) {
		s, err := c.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return f(s), nil
	})
}

type client struct {
	*recipes.Client
	*connector
}

type connector struct {
	driver.Connector
	mu   sync.Mutex
	last driver.Session
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = s
	}
	return s, err
}

func (c *client) session() driver.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return faults.Unwrap(c.last)
}

// placeOnly returns a connector whose Create returns neither a watch nor the
// nodes ahead.
func (w *world) placeOnly() driver.Connector {
	return faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
		created := r.Op == faults.OpCreate && r.Stage == faults.StageReply
		return faults.Fault{DropAhead: created, DropWatch: created}
	})
}

func (w *world) client(host string, opts ...recipes.Option) *client {
	w.Helper()
	return w.clientOf(w.store, host, opts...)
}

func (w *world) clientOf(c driver.Connector, host string, opts ...recipes.Option) *client {
	w.Helper()
	cl := w.connecting(c, append([]recipes.Option{recipes.WithHostname(host)}, opts...)...)
	require.NoError(w, cl.Ping(w.Context()))
	return cl
}

// connecting returns a client that has not connected yet.
func (w *world) connecting(c driver.Connector, opts ...recipes.Option) *client {
	conn := &connector{Connector: c}
	cl := &client{recipes.NewClient(conn, opts...), conn}
	w.Cleanup(func() { _ = cl.Close() })
	return cl
}

func (w *world) lose(s driver.Session, op faults.Op, committed bool) {
	if committed {
		w.store.Faults().LoseReply(s, op)
	} else {
		w.store.Faults().LoseRequest(s, op)
	}
}

func (w *world) names() []string {
	w.Helper()
	s, err := w.store.Connect(w.Context())
	require.NoError(w, err)
	defer s.Close()
	nodes, err := s.List(w.Context(), "q")
	require.NoError(w, err)
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

func (w *world) granted(l *recipes.Lock, err error) *recipes.Lock {
	w.Helper()
	require.NoError(w, err)
	return l
}

type result struct {
	lock *recipes.Lock
	err  error
}

// going calls f on a goroutine, and returns once f has returned or is blocked.
func going(f func() (*recipes.Lock, error)) <-chan result {
	c := make(chan result, 1)
	go func() {
		l, err := f()
		c <- result{l, err}
	}()
	synctest.Wait()
	return c
}

func (c *client) lock(ctx context.Context, opts ...recipes.Option) <-chan result {
	return going(func() (*recipes.Lock, error) { return c.RWMutex("q", opts...).Lock(ctx) })
}

func (c *client) rlock(ctx context.Context, opts ...recipes.Option) <-chan result {
	return going(func() (*recipes.Lock, error) { return c.RWMutex("q", opts...).RLock(ctx) })
}

// won returns the Lock received from c. If there is none yet, the test fails.
func (w *world) won(c <-chan result) *recipes.Lock {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		require.NoError(w, r.err)
		require.NoError(w, r.lock.Err())
		return r.lock
	default:
		require.FailNow(w, "the lock was not granted")
		return nil
	}
}

func (w *world) waits(c <-chan result) {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		require.FailNow(w, "the call returned", "lock %v, error %v", r.lock, r.err)
	default:
	}
}

func (w *world) failed(c <-chan result) error {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		require.Error(w, r.err)
		require.Nil(w, r.lock)
		return r.err
	default:
		require.FailNow(w, "the call has not returned")
		return nil
	}
}

func isClosed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (w *world) unlock(locks ...*recipes.Lock) {
	w.Helper()
	for _, l := range locks {
		require.NoError(w, l.Unlock())
	}
}

// safeBuffer is a buffer that goroutines may write to while the test reads.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func logTo(log io.Writer) recipes.Option {
	return recipes.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

var bg = context.Background()

// soon is longer, in virtual time, than any background work takes.
const soon = time.Second
