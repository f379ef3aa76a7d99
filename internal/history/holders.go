package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Holders checks that a lock has only one holder at a time. It records the
// holders in memory, where a failing server cannot lose them. The zero value is
// ready to use and safe for concurrent use.
type Holders struct {
	mu     sync.Mutex
	holder claim // current holder, or nil
	last   int64 // token of the latest holder
	grants atomic.Int64
}

type claim interface {
	Err() error
	Token() int64
}

// Work holds the lock l for two milliseconds, sometimes longer, or until it is
// lost. It fails the test if the token has not risen or somebody else holds the
// lock. A holder whose Err reports a loss does not count.
func (h *Holders) Work(t testing.TB, l *dlock.Lock) {
	defer h.grants.Add(1)
	in, err := h.enter(l)
	if err != nil {
		t.Error(err)
	}
	if !in {
		return
	}
	d := 2 * time.Millisecond
	if rand.N(8) == 0 {
		d = rand.N(300 * time.Millisecond) // long enough for a fault to hit
	}
	select {
	case <-l.Lost():
	case <-time.After(d):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder == claim(l) {
		h.holder = nil
	}
}

func (h *Holders) enter(l claim) (in bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	alone := h.holder == nil || h.holder.Err() != nil
	if l.Err() != nil {
		return false, nil
	}
	if !alone {
		err = errors.New("two holders at once")
	}
	if h.last >= l.Token() {
		err = errors.Join(err, fmt.Errorf("token %d after %d", l.Token(), h.last))
	}
	h.holder, h.last = l, l.Token()
	return true, err
}

// Grants returns how often Work has returned.
func (h *Holders) Grants() int64 { return h.grants.Load() }

// Await waits until Work has returned 20 more times, and fails the test if that
// takes over a minute.
func (h *Holders) Await(t testing.TB) {
	t.Helper()
	if !h.GoOn() {
		t.Fatal("hardly any lock was granted for a minute")
	}
}

// GoOn reports whether Work has returned 20 more times within a minute.
func (h *Holders) GoOn() bool {
	from := h.grants.Load()
	for end := time.Now().Add(time.Minute); h.grants.Load() < from+20; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// Load lets n clients lock and unlock until stop is called.
func (h *Holders) Load(t testing.TB, n int, open func() (*dlock.Client, error)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range n {
		client, err := open()
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			h.contend(ctx, t, client.RWMutex("q"))
			_ = client.Close() // fails if the server is down
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func (h *Holders) contend(ctx context.Context, t testing.TB, m *dlock.RWMutex) {
	for ctx.Err() == nil {
		l, err := m.Lock(ctx)
		switch {
		case err == nil:
			h.Work(t, l)
			_ = l.Unlock() // fails if the lock was lost
		case ctx.Err() == nil && !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrSessionEnded):
			t.Errorf("lock: %v", err)
			return
		}
	}
}

// CutOff cuts a new holder off from the server at addr, so that no notice
// reaches this client. It must give up the lock before another client gets it.
// The function dsn returns a data source name with the given address.
func (h *Holders) CutOff(t testing.TB, driverName, addr string, dsn func(addr string) string) {
	t.Helper()
	side := testenv.NewProxy(t, addr, nil)
	client, err := dlock.Open(driverName, dsn(side.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := client.RWMutex("q").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	side.Cut()
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		in, err := h.enter(l)
		if err != nil {
			t.Error(err)
		}
		if in {
			<-l.Lost()
		}
		side.Heal()
		_ = client.Close() // the server may no longer know the session
	}()
	t.Cleanup(func() { <-lost })
}

// KilledUnderLoad kills and restarts a server repeatedly while clients lock and
// unlock.
func KilledUnderLoad(t testing.TB, server interface {
	Kill()
	Restart()
}, open func() (*dlock.Client, error)) {
	t.Helper()
	var h Holders
	defer h.Load(t, 6, open)()
	for range 3 {
		h.Await(t)
		server.Kill()
		server.Restart()
	}
	h.Await(t)
}
