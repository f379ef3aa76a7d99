package sqltest

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
)

// Waiters is a connector that counts the answered requests of all its sessions.
type Waiters struct {
	t       testing.TB
	connect func(context.Context) (*session.Session, *Requests, error)

	mu   sync.Mutex
	sent map[string]int // by method
}

// NewWaiters returns a connector that begins its sessions with connect.
func NewWaiters(t testing.TB, connect func(context.Context) (*session.Session, *Requests, error)) *Waiters {
	return &Waiters{t: t, connect: connect, sent: make(map[string]int)}
}

// Connect implements driver.Connector.
func (w *Waiters) Connect(ctx context.Context) (driver.Session, error) {
	s, requests, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	requests.Intercept(func(ctx context.Context, method string, send func(context.Context) error) error {
		err := send(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sent[method]++
		return err
	})
	return s, nil
}

// Client returns a new client, which is closed when the test ends.
func (w *Waiters) Client() *dlock.Client {
	client := dlock.NewClient(w)
	w.t.Cleanup(func() { client.Close() })
	return client
}

// Lock takes the lock q with a client of its own.
func (w *Waiters) Lock() *dlock.Lock { return Lock(w.t, w.Client().RWMutex("q")) }

// Wait makes another client wait for the lock q. The channel gets the error of
// Lock, or of Unlock, which follows at once.
func (w *Waiters) Wait(ctx context.Context) <-chan error { return Wait(ctx, w.Client().RWMutex("q")) }

// Requests returns the number of requests by method.
func (w *Waiters) Requests() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.sent)
}

// Await waits until n requests of a method were answered.
func (w *Waiters) Await(method string, n int) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); w.Requests()[method] < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("after a minute, the requests are %v, want %d of %s", w.Requests(), n, method)
		}
	}
}

// Lock takes a lock.
func Lock(t testing.TB, m *dlock.RWMutex) *dlock.Lock {
	l, err := m.Lock(context.Background())
	if err != nil {
		t.Error(err)
	}
	return l
}

// Wait is like [Waiters.Wait] for any lock.
func Wait(ctx context.Context, m *dlock.RWMutex) <-chan error {
	got := make(chan error, 1)
	go func() {
		l, err := m.Lock(ctx)
		if err == nil {
			err = l.Unlock()
		}
		got <- err
	}()
	return got
}

// Soon requires that a waiter gets the lock within 40 seconds. A longer limit
// would hide a lost wake-up: after a minute an idle connection is closed, which
// also gives the waiter the lock.
func Soon(t testing.TB, waits <-chan error) {
	t.Helper()
	select {
	case err := <-waits:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(40 * time.Second):
		t.Fatal("the waiter does not get the lock")
	}
}

// NoPolls requires that a waiter on a lane does not poll. The holder and the
// waiter must have different clients with long session timeouts.
func NoPolls(t *testing.T, holder, waiter *Waiters) {
	t.Helper()
	held := holder.Lock()
	waits := waiter.Wait(t.Context())
	waiter.Await("Await", 2)
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	Soon(t, waits)
	sent := waiter.Requests()
	delete(sent, "Await") // about one a second
	if want := map[string]int{"Create": 1, "Delete": 1}; !maps.Equal(sent, want) {
		t.Errorf("the waiter sent %v, want %v", sent, want)
	}
}

// PollsWithoutLane requires that a waiter polls after the connection of the
// holder's lane is lost. The function drop closes the holder's connections.
func PollsWithoutLane(t *testing.T, holder, waiter *Waiters, drop func()) {
	t.Helper()
	held := holder.Lock()
	waits := waiter.Wait(t.Context())
	waiter.Await("Await", 1)
	drop()
	waiter.Await("Look", 3)
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	Soon(t, waits)
}

// OneLane requires that waiters of one session with a single lane get their
// locks. The sessions have the parameter lanes=1.
func OneLane(t *testing.T, w *Waiters) {
	t.Helper()
	holder, waiter := w.Client(), w.Client()
	var held []*dlock.Lock
	var waits []<-chan error
	for _, name := range []string{"a", "b", "c"} {
		held = append(held, Lock(t, holder.RWMutex(name)))
		waits = append(waits, Wait(t.Context(), waiter.RWMutex(name)))
	}
	w.Await("Look", 2)
	for i := range held {
		if err := held[i].Unlock(); err != nil {
			t.Fatal(err)
		}
		Soon(t, waits[i])
	}
}
