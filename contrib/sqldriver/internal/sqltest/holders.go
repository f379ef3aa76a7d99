package sqltest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Holders checks the holders of one lock. It counts them in the memory of the test, so
// a failure of the server cannot hide that two sessions hold the lock at once. The zero
// value is ready for use, by many goroutines.
type Holders struct {
	now    atomic.Int64 // holders at the moment
	last   atomic.Int64 // the token of the last holder
	grants atomic.Int64 // locks with which Work was called, and has returned
}

// Work holds the lock for two milliseconds, or until the lock is lost. It checks that
// there is no other holder, and that the token is higher than the last one.
func (h *Holders) Work(t testing.TB, l *dlock.Lock) {
	defer h.grants.Add(1)
	ctx := l.Context(context.Background())
	if ctx.Err() != nil {
		return
	}
	if n := h.now.Add(1); n != 1 && ctx.Err() == nil {
		t.Errorf("%d holders at once", n)
	}
	if before := h.last.Swap(l.Token()); before >= l.Token() && ctx.Err() == nil {
		t.Errorf("token %d after %d", l.Token(), before)
	}
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Millisecond):
	}
	h.now.Add(-1)
}

// Await waits until Work has returned n more times. If that takes more than a minute,
// Await ends the test.
func (h *Holders) Await(t testing.TB, n int64) {
	t.Helper()
	from := h.grants.Load()
	for end := time.Now().Add(time.Minute); h.grants.Load() < from+n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no lock was granted for a minute")
		}
	}
}

// Server is a server that a test kills and starts again.
type Server interface {
	Kill()
	Restart()
}

// KilledUnderLoad kills the server again and again while four sessions lock, and checks
// their locks with [Holders].
func KilledUnderLoad(t testing.TB, server Server, driverName, dsn string) {
	t.Helper()
	var holders Holders
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 4 {
		client, err := dlock.Open(driverName, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := client.RWMutex("q").Lock(ctx)
				if err != nil {
					continue // the session has ended: the next Lock begins another one
				}
				holders.Work(t, l)
				_ = l.Unlock() // returns an error if the lock was lost
			}
		})
	}
	for range 3 {
		holders.Await(t, 20)
		server.Kill()
		server.Restart()
	}
	holders.Await(t, 20)
}
