package zklocks_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// swift is less than the 300 ms after which a held lock's node is watched, which takes requests of its own.
const swift = 200 * time.Millisecond

// swiftly repeats f until it has held no lock for long, which a busy machine may take a few tries for.
func (w *world) swiftly(f func() (longest time.Duration)) {
	w.Helper()
	w.eventually(func() bool { return f() < swift }, func() string { return "the machine is too slow to count requests" })
}

func TestAFreeLockAndItsUnlockAreTwoRequests(t *testing.T) {
	for _, mode := range []dlock.Mode{dlock.Exclusive, dlock.Shared} {
		for _, queue := range []string{"q", "stock/42"} {
			t.Run(mode.String()+" "+queue, func(t *testing.T) {
				const n = 100
				w := newWorld(t)
				m := w.client("web1").RWMutex(queue)
				enter := m.Lock
				if mode == dlock.Shared {
					enter = m.RLock
				}
				round := func() time.Duration {
					began := time.Now()
					lock, err := enter(t.Context())
					require.NoError(t, err)
					w.unlock(lock)
					return time.Since(began)
				}
				round() // makes the queue
				var spent int64
				w.swiftly(func() (longest time.Duration) {
					before := w.server.Requests(t)
					for range n {
						longest = max(longest, round())
					}
					spent = w.server.Requests(t) - before
					return longest
				})
				require.EqualValues(t, 2*n, spent)
			})
		}
	}
}

func TestAFreeLockIsOneMultiAndItsUnlockOneRequest(t *testing.T) {
	w := newWorld(t)
	c, proxy := w.proxied("web1")
	m := c.RWMutex("q")
	lock, err := m.Lock(t.Context())
	require.NoError(t, err)
	w.unlock(lock)
	w.swiftly(func() time.Duration {
		began, multi, all := time.Now(), proxy.Frames(zktest.OpMulti), proxy.Requests()
		lock, err = m.Lock(t.Context())
		require.NoError(t, err)
		multi, taken := proxy.Frames(zktest.OpMulti)-multi, proxy.Requests()-all
		w.unlock(lock)
		given, took := proxy.Requests()-all, time.Since(began)
		if took < swift {
			require.Equal(t, []int{1, 1, 2}, []int{multi, taken, given})
		}
		return took
	})
}

func TestEnteringAgainSendsNothing(t *testing.T) {
	w := newWorld(t)
	c, proxy := w.proxied("web1")
	m := c.RWMutex("q")
	lock, err := m.Lock(t.Context())
	require.NoError(t, err)
	before := proxy.Frames(zktest.OpMulti) + proxy.Frames(zktest.OpDelete)
	for range 100 {
		again, err := m.Lock(lock.Context(t.Context()))
		require.NoError(t, err)
		require.Equal(t, lock.Token(), again.Token())
		shared, err := m.RLock(again.Context(t.Context()))
		require.NoError(t, err)
		w.unlock(shared, again)
	}
	require.Equal(t, before, proxy.Frames(zktest.OpMulti)+proxy.Frames(zktest.OpDelete))
	w.unlock(lock)
	w.listed("q")
}

func TestTryLockOfALockedLockWritesNothing(t *testing.T) {
	w := newWorld(t)
	holder := w.lock(w.client("web1")).granted()
	c, proxy := w.proxied("web2")
	_, before, err := w.raw.Get(w.path("q"))
	require.NoError(t, err)
	requests := proxy.Requests()
	for range 10 {
		_, err := c.RWMutex("q").TryLock(w.soon())
		require.ErrorIs(t, err, dlock.ErrLocked)
		_, err = c.RWMutex("q").TryRLock(w.soon())
		require.ErrorIs(t, err, dlock.ErrLocked)
	}
	require.Equal(t, requests+20, proxy.Requests(), "one request for each")
	for _, op := range []int32{zktest.OpMulti, zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpSetData, zktest.OpDelete} {
		require.Zero(t, proxy.Frames(op), "operation %d", op)
	}
	_, after, err := w.raw.Get(w.path("q"))
	require.NoError(t, err)
	require.Equal(t, before, after)
	w.unlock(holder)
}
