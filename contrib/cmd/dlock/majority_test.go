package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/majority"
)

const bound = 2 * time.Minute

// open opens a client for each store, which is given as "driver dsn".
func open(t *testing.T, stores []string, opts ...dlock.Option) (clients []*dlock.Client) {
	t.Helper()
	for _, store := range stores {
		driver, dsn, _ := strings.Cut(store, " ")
		c, err := dlock.Open(driver, dsn, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() }) // fails if the server is down
		clients = append(clients, c)
	}
	return clients
}

func mutex(clients []*dlock.Client) *majority.Mutex {
	return &majority.Mutex{Name: "stock/42", Clients: clients}
}

type server interface {
	Kill()
	Restart()
}

func TestAMajorityOfStoresOfFourKinds(t *testing.T) {
	if testing.Short() {
		t.Skip("starts five servers, and waits for sessions to end")
	}
	first, second := redistest.Start(t, redistest.Durable()), redistest.Start(t, redistest.Durable())
	pg, etcd, zk := pgtest.Start(t), etcdtest.Start(t), zktest.Start(t)
	stores := []string{
		"redis redis://" + first.Addr() + "?empty_is_new=true&session_timeout=5s",
		"redis redis://" + second.Addr() + "?empty_is_new=true&session_timeout=5s",
		"postgres " + pg.DSN("session_timeout=5s"),
		"etcd etcd://" + etcd.Addr() + "?session_timeout=5s",
		"zk zk://" + zk.Addr() + "/?session_timeout=5s",
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	a, b := mutex(open(t, stores)), mutex(open(t, stores))
	var marks fence.Marks
	write := func(l *majority.Lock) error { return marks.DoAll("stock/42", l.Tokens(), func() error { return nil }) }
	require.NoError(t, lockInAllStores(ctx, t, b).Unlock())
	for _, killed := range [][]int{{0, 3}, {1, 4}, {2, 0}} {
		servers := []server{first, second, pg, etcd, zk}
		held := lockInAllStores(ctx, t, a)
		require.NoError(t, write(held))
		for _, i := range killed {
			servers[i].Kill()
		}
		for _, i := range killed { // two of five stores are down
			require.Eventually(t, func() bool { return errors.Is(held.All()[i].Err(), dlock.ErrLost) }, bound, 10*time.Millisecond)
		}
		require.NoError(t, held.Err())
		_, err := b.TryLock(ctx)
		require.ErrorIs(t, err, dlock.ErrLocked)
		require.NoError(t, held.Unlock())

		next, err := b.Lock(ctx) // the two stores are still down
		require.NoError(t, err)
		for i, token := range next.Tokens() {
			require.Equal(t, i == killed[0] || i == killed[1], token == 0, "%v: %v", killed, next.Tokens())
		}
		require.NoError(t, write(next))
		require.ErrorIs(t, write(held), fence.ErrStale)
		require.NoError(t, next.Unlock())
		for _, i := range killed {
			servers[i].Restart()
		}
		require.NoError(t, lockInAllStores(ctx, t, b).Unlock())
	}
}

// lockInAllStores retries, because m.Lock may leave out a slow store.
func lockInAllStores(ctx context.Context, t *testing.T, m *majority.Mutex) *majority.Lock {
	t.Helper()
	for {
		l, err := m.Lock(ctx)
		require.NoError(t, err)
		if !slices.Contains(l.Tokens(), 0) {
			return l
		}
		_ = l.Unlock() // fails if a store does not answer yet
		time.Sleep(100 * time.Millisecond)
	}
}

// A free lock costs a Create and a Delete in each store.
func TestRequestsOfAMajority(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) (store string, requests func() int){
		"zk": func(t *testing.T) (string, func() int) {
			server := zktest.Shared(t)
			proxy := zktest.NewProxy(t, server.Addr())
			return "zk zk://" + proxy.Addr() + server.Chroot(t) + "?session_timeout=30s", proxy.Requests
		},
		"redis": func(t *testing.T) (string, func() int) {
			server := redistest.Start(t, redistest.Durable())
			proxy := redistest.NewProxy(t, server.Addr(), func([]string) int32 { return 0 })
			return "redis redis://" + proxy.Addr() + "?empty_is_new=true&session_timeout=10m&read_timeout=1m", func() int { return proxy.Frames(0) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stores []string
			var counts []func() int
			for range 3 {
				store, requests := start(t)
				stores, counts = append(stores, store), append(counts, requests)
			}
			count := func() (n []int) {
				for _, requests := range counts {
					n = append(n, requests())
				}
				return n
			}
			m := mutex(open(t, stores))
			for range 2 { // connect, and create the queue
				l, err := m.Lock(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Unlock())
			}
			before := count()
			l, err := m.Lock(t.Context())
			require.NoError(t, err)
			require.NotContains(t, l.Tokens(), int64(0))
			require.NoError(t, l.Unlock())
			after := count()
			for i := range after {
				require.Equal(t, 2, after[i]-before[i], "store %d", i)
			}
		})
	}
}
