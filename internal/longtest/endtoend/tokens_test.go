package endtoend_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// acquire makes the clients take the lock "q", the given number of times in
// total and a quarter of the times shared. After every tenth release, it calls
// the function between.
func (w *fixture) acquire(inside *referee, clients []*dlock.Client, times int, between func()) {
	w.Helper()
	var (
		left   atomic.Int64
		all    sync.WaitGroup
		before = inside.entries
	)
	ctx, cancel := context.WithTimeout(w.Context(), 2*bound)
	defer cancel()
	left.Store(int64(times))
	for _, c := range clients {
		all.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				m := c.RWMutex("q")
				enter := m.Lock
				if n%4 == 0 {
					enter = m.RLock
				}
				lock, err := enter(ctx)
				if err != nil {
					inside.add("lock: %w", err)
					return
				}
				inside.enter(lock)
				inside.leave(lock)
				if err := release(lock); err != nil {
					inside.add("unlock: %w", err)
					return
				}
				if n%10 == 0 {
					between()
				}
			}
		})
	}
	all.Wait()
	inside.none(w)
	require.Equal(w, before+times, inside.entries)
	w.listed("q")
}

func TestTokensRiseOverAThousandAcquisitionsBySeveralClients(t *testing.T) {
	w := newFixture(t)
	w.acquire(new(referee), w.clients(4), 1000, func() {})
}

func TestTokensRiseAcrossRemovalsOfTheQueue(t *testing.T) {
	w := newFixture(t)
	clients := w.clients(4)
	var inside referee
	for range 4 {
		w.acquire(&inside, clients, 250, func() {
			err := w.raw.Delete(w.path("q"), -1) // fails unless the queue is empty
			if err != nil && !errors.Is(err, zk.ErrNotEmpty) && !errors.Is(err, zk.ErrNoNode) {
				t.Error(err)
			}
		})
		w.removeQueue("q")
		lock := w.lock(clients[0]).granted()
		require.Equal(t, "web0-W-0000000000", lock.Node())
		inside.enter(lock)
		inside.leave(lock)
		w.unlock(lock)
	}
	inside.none(t)
}

func TestTokensRiseWhenTheSequencesStartOver(t *testing.T) {
	const limit = 100
	w := newFixture(t)
	var clients []*dlock.Client
	for _, host := range []string{"web1", "web2", "web3"} {
		clients = append(clients, w.open(w.dsn(w.server.Addr(), "session_timeout=10m&sequence_limit=100"), host))
	}
	epochs := make(map[int64]bool)
	var mu sync.Mutex
	w.acquire(new(referee), clients, 500, func() {
		_, stat, err := w.raw.Exists(w.path("q"))
		mu.Lock()
		defer mu.Unlock()
		if err == nil && stat.Czxid != 0 {
			epochs[stat.Czxid] = true
		}
	})
	require.GreaterOrEqual(t, len(epochs), 500/limit-1)
	lock := w.lock(clients[0]).granted()
	require.Less(t, sequence(lock.Node()), "0000000100")
	w.unlock(lock)
}

func TestAWaiterAtTheEndOfTheSequencesIsNotGrantedBesideTheHolder(t *testing.T) {
	w := newFixture(t)
	c := w.open(w.dsn(w.server.Addr(), "session_timeout=10m&sequence_limit=1"), "web1")
	first := w.lock(c).granted()
	require.Equal(t, "web1-W-0000000000", first.Node())
	k := w.lock(c) // waits until the queue is empty
	short, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	_, err := w.client("web2").RWMutex("q").TryLock(short)
	require.ErrorIs(t, err, dlock.ErrLocked)
	k.waits()
	w.unlock(first)
	lock := k.granted()
	require.Equal(t, "web1-W-0000000000", lock.Node())
	require.Greater(t, lock.Token(), first.Token())
	w.unlock(lock)
}
