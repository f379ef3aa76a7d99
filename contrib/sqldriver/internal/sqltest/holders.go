package sqltest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Holders checks that a lock has only one holder at a time. It records the
// holders in memory, where a failing server cannot lose them. The zero value is
// ready to use and safe for concurrent use.
type Holders struct {
	mu     sync.Mutex
	holder *dlock.Lock  // latest holder whose Work has not ended
	last   int64        // token of the latest holder
	grants atomic.Int64 // number of times that Work has returned
}

// Work holds the lock l for two milliseconds, or until it is lost. It fails the
// test if somebody else holds the lock or the token has not risen. A holder
// that has lost its lock does not count.
func (h *Holders) Work(t testing.TB, l *dlock.Lock) {
	defer h.grants.Add(1)
	if !h.enter(t, l) {
		return
	}
	select {
	case <-l.Lost():
	case <-time.After(2 * time.Millisecond):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder == l {
		h.holder = nil
	}
}

// enter records l as the holder. It returns false if l is lost.
func (h *Holders) enter(t testing.TB, l *dlock.Lock) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	alone := h.holder == nil || h.holder.Err() != nil
	if l.Err() != nil {
		return false
	}
	if !alone {
		t.Errorf("two holders at once")
	}
	if h.last >= l.Token() {
		t.Errorf("token %d after %d", l.Token(), h.last)
	}
	h.holder, h.last = l, l.Token()
	return true
}

// Lock takes a lock.
func Lock(t testing.TB, m *dlock.RWMutex) *dlock.Lock {
	l, err := m.Lock(context.Background())
	if err != nil {
		t.Error(err)
	}
	return l
}

// Unlock releases the lock and fails the test on an error, unless a slow
// machine exceeded the timeout of 2 s.
func Unlock(t testing.TB, l *dlock.Lock) {
	t.Helper()
	began := time.Now()
	if err := l.Unlock(); err != nil && (!errors.Is(err, dlock.ErrUnavailable) || time.Since(began) < 2*time.Second) {
		t.Error(err)
	}
}

// Count runs a test that counts requests. It repeats a failed run that took
// more than 300 ms, because a holder then makes further requests to watch its
// own node. run returns the time at which it began to lock.
func Count(t testing.TB, run func() (began time.Time, err error)) {
	t.Helper()
	for range 20 {
		began, err := run()
		took := time.Since(began)
		if err == nil {
			return
		}
		if took < 300*time.Millisecond {
			t.Fatal(err)
		}
		t.Logf("once more after %v: %v", took, err)
	}
	t.Error("the machine is too slow, or there are too many requests")
}

// Await waits, for a minute at most, until Work has returned n more times.
func (h *Holders) Await(t testing.TB, n int64) {
	t.Helper()
	from := h.grants.Load()
	for end := time.Now().Add(time.Minute); h.grants.Load() < from+n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no lock was granted for a minute")
		}
	}
}

// Server is a server that a test kills and restarts.
type Server interface {
	Kill()
	Restart()
}

// Load lets n sessions lock and unlock until stop is called, and checks with h
// that the lock has one holder.
func (h *Holders) Load(t testing.TB, n int, driverName, dsn string) (stop func()) {
	t.Helper()
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range n {
		client, err := dlock.Open(driverName, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := client.RWMutex("q").Lock(ctx)
				if err != nil {
					continue // the session has ended; the next Lock begins another one
				}
				h.Work(t, l)
				_ = l.Unlock() // fails if the lock was lost
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// CutOff checks that a client that is cut off from the server at addr gives its
// lock up before another client gets it. No notice can reach the first client.
// dsn returns a data source name with the given address.
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
		if h.enter(t, l) {
			<-l.Lost()
		}
		side.Heal()
		_ = client.Close() // the session may be unknown
	}()
	t.Cleanup(func() { <-lost })
}

// KilledUnderLoad kills and restarts the server repeatedly while four sessions
// lock and unlock.
func KilledUnderLoad(t testing.TB, server Server, driverName, dsn string) {
	t.Helper()
	var holders Holders
	defer holders.Load(t, 4, driverName, dsn)()
	for range 3 {
		holders.Await(t, 20)
		server.Kill()
		server.Restart()
	}
	holders.Await(t, 20)
}

// SaysWhyItEnded checks that the error of a lost lock names the cause, a killed
// server.
func SaysWhyItEnded(t testing.TB, server Server, driverName, dsn string) {
	t.Helper()
	client, err := dlock.Open(driverName, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l, err := client.RWMutex("lost").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	defer server.Restart()
	<-l.Lost()
	if text := l.Err().Error(); !strings.Contains(text, "the last failure: ") || !strings.Contains(text, "connection refused") {
		t.Errorf("the error of the lock does not say why: %v", text)
	}
}
