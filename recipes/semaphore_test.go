package recipes_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func (c *client) acquire(ctx context.Context, weight, n int, opts ...recipes.Option) <-chan result {
	return going(func() (*recipes.Lock, error) { return c.Semaphore("q", n, opts...).Acquire(ctx, weight) })
}

// A granted client renames its node from S to H to wake the waiter behind.
func TestOneReleaseServesEveryWaiterWhoseUnitsItFrees(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("h")
		all := w.won(c.acquire(bg, 3, 3))
		var waiting []<-chan result
		for range 4 {
			waiting = append(waiting, c.acquire(bg, 1, 3))
		}
		w.unlock(all)
		held := []*recipes.Lock{w.won(waiting[0]), w.won(waiting[1]), w.won(waiting[2])}
		w.waits(waiting[3])
		assert.Equal(w, []string{"h-H1of3-0000000001", "h-H1of3-0000000002", "h-H1of3-0000000003", "h-S1of3-0000000004"}, w.names())
		w.unlock(held[1])
		last := w.won(waiting[3])
		assert.Equal(w, "h-S1of3-0000000004", last.Node(), "no node was behind to be told")
		w.unlock(held[0], held[2], last)
	})
}

func TestWhatASemaphoreRequestsOfTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("h")
		requests := func() (n int64) {
			for _, of := range w.store.Stats().Requests {
				n += of
			}
			return n
		}
		cost := func(what string, want int64, do func()) {
			w.Helper()
			before := requests()
			do()
			synctest.Wait()
			assert.Equal(w, want, requests()-before, what)
		}
		cost("alone", 2, func() { w.unlock(w.won(c.acquire(bg, 1, 3))) })
		held := w.won(c.acquire(bg, 1, 3))
		cost("beside a holder", 2, func() { w.unlock(w.won(c.acquire(bg, 1, 3))) })
		also := w.won(c.acquire(bg, 2, 3))
		var first, second, third <-chan result
		cost("the first waiter joins", 2, func() { first = c.acquire(bg, 1, 3) })
		cost("a later one joins", 1, func() { second = c.acquire(bg, 2, 3) })
		cost("another", 1, func() { third = c.acquire(bg, 1, 3) })
		// The holder deletes; the first waiter lists and renames; the next
		// lists and watches.
		cost("hand-over", 1+2+2, func() { w.unlock(held) })
		held = w.won(first)
		w.waits(second)
		cost("hand-over to two", 1+2+2, func() { w.unlock(also) })
		also = w.won(second)
		cost("hand-over to the last", 1+1, func() { w.unlock(held) })
		w.unlock(also, w.won(third))
	})
}

func TestWrongUnitsAreAnErrorAndLeaveNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("h")
		before := w.store.Stats()
		for _, wrong := range []struct {
			weight, n int
			says      string
		}{
			{1, 0, "dlock: q: a semaphore has from 1 to 1000000 units, not 0"},
			{1, -3, "not -3"},
			{1, 1_000_001, "not 1000001"},
			{0, 5, "dlock: q: cannot acquire 0 of 5 units"},
			{-1, 5, "cannot acquire -1 of 5 units"},
			{6, 5, "cannot acquire 6 of 5 units"},
		} {
			s := c.Semaphore("q", wrong.n)
			_, err := s.Acquire(bg, wrong.weight)
			require.ErrorContains(w, err, wrong.says)
			_, err = s.TryAcquire(bg, wrong.weight)
			require.ErrorContains(w, err, wrong.says)
		}
		_, err := c.Semaphore("q", 0).Queue(bg)
		require.ErrorContains(w, err, "not 0")
		_, err = c.Semaphore("//", 0).Acquire(bg, 1)
		require.ErrorIs(w, err, recipes.ErrBadName)
		assert.Empty(w, w.spent(before))
	})
}

func TestASemaphoreAndALockOfOneNameExcludeEachOther(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("h")
		units, more := w.won(c.acquire(bg, 1, 2)), w.won(c.acquire(bg, 1, 2))
		reader := c.rlock(bg)
		writer := c.lock(bg)
		behind := c.acquire(bg, 1, 2)
		last := c.acquire(bg, 1, 2)
		w.waits(reader)
		w.unlock(more)
		w.waits(reader)
		w.unlock(units)
		r := w.won(reader)
		w.waits(writer)
		w.waits(behind)
		w.unlock(r)
		held := w.won(writer)
		w.waits(behind)
		before := w.store.Stats()
		w.unlock(held)
		units = w.won(behind)
		more = w.won(last)
		assert.EqualValues(w, 1, w.spent(before)[faults.OpList], "the first is granted by the release, and tells the second")
		w.unlock(units, more)
	})
}

func TestClientsWithDifferentUnitsAreAllServed(t *testing.T) {
	inWorld(t, func(w *world) {
		var log safeBuffer
		logger := recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
		small, large := w.client("small", logger), w.client("large", logger)
		held := w.won(large.acquire(bg, 3, 5))
		var waiting []<-chan result
		for range 3 {
			waiting = append(waiting, small.acquire(bg, 1, 2), large.acquire(bg, 1, 5))
		}
		w.waits(waiting[0])
		w.unlock(w.won(waiting[1])) // 3 held, 1 ahead and 1 own
		w.unlock(held)
		for _, c := range append(waiting[:1:1], waiting[2:]...) {
			w.unlock(w.won(c))
		}
		said := strings.Count(log.String(), `level=WARN msg="dlock: clients of a semaphore count its units differently" lock=q`)
		assert.Equal(w, 2, said, "once a client")
	})
}

func TestUnitsAreNotTakenAgainByReentry(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("h")
		s := c.Semaphore("q", 2)
		first := w.won(c.acquire(bg, 1, 2))
		ctx := first.Context(bg)
		assert.Same(w, first, recipes.FromContext(ctx))
		second, err := s.TryAcquire(ctx, 1)
		require.NoError(w, err)
		assert.NotEqual(w, first.Token(), second.Token())
		_, err = s.TryAcquire(ctx, 1)
		require.ErrorIs(w, err, recipes.ErrLocked)
		_, err = c.RWMutex("q").TryRLock(ctx)
		require.ErrorIs(w, err, recipes.ErrLocked, "units are no lock to enter again")
		w.unlock(first, second)
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrNotHeld)

		lock := w.won(c.lock(bg))
		_, err = s.TryAcquire(lock.Context(bg), 1)
		require.ErrorIs(w, err, recipes.ErrLocked)
		w.unlock(lock)
	})
}

func TestUnitsCannotBeDowngraded(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.won(w.client("h").acquire(bg, 1, 2))
		require.EqualError(w, l.Downgrade(bg), "dlock: q: units of a semaphore cannot be downgraded")
		assert.Equal(w, recipes.Shared, l.Mode())
		require.NoError(w, l.Err())
		w.unlock(l)
		require.ErrorIs(w, l.Downgrade(bg), recipes.ErrNotHeld)
	})
}

func TestTheQueueShowsUnits(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("web-S9of9")
		held := w.won(c.acquire(bg, 2, 3))
		waiting := c.acquire(bg, 2, 3)
		all, err := c.Semaphore("q", 3).Queue(bg)
		require.NoError(w, err)
		require.Len(w, all, 2)
		assert.Equal(w, "web-S9of9", all[0].Host)
		assert.Equal(w, []int{2, 3}, []int{all[1].Units, all[1].OfUnits})
		assert.Equal(w, []bool{true, false}, []bool{all[0].Holds, all[1].Holds})
		assert.Contains(w, all[0].String(), "web-S9of9-S2of3-0000000000 holds, shared, 2 of 3 units, host web-S9of9")
		lock, err := c.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		assert.Equal(w, all, lock)
		w.unlock(held)
		w.unlock(w.won(waiting))
		l := w.won(c.lock(bg))
		all, err = c.Semaphore("q", 3).Queue(bg)
		require.NoError(w, err)
		assert.Zero(w, all[0].Units)
		assert.Equal(w, "web-S9of9", all[0].Host)
		w.unlock(l)
	})
}

func TestHooksNameTheSemaphore(t *testing.T) {
	inWorld(t, func(w *world) {
		var seen []string
		c, other := w.client("h", recipes.WithTrace(life(&seen))), w.client("o")
		seen = nil
		all := w.won(other.acquire(bg, 2, 2))
		first, behind := c.acquire(bg, 1, 2), other.acquire(bg, 1, 2)
		w.unlock(all)
		w.unlock(w.won(first), w.won(behind))
		_, err := c.Semaphore("q", 2).Acquire(bg, 3)
		require.Error(w, err)
		assert.Equal(w, []string{
			"semaphore started shared false <- ",
			"semaphore queued h-S1of2-0000000001 <- ",
			"semaphore waiting q: h-S1of2-0000000001 waits behind o-S2of2-0000000000, 2nd in the queue <- ",
			"semaphore granted shared false 0s <- ",
			"semaphore released shared 0s <- ",
			"semaphore started shared false <- ",
			"semaphore failed  shared false 0s <- ",
		}, seen)
	})
}

// A node of almost this form may be another program's, which may hold the lock.
func TestNodesThatAreAlmostUnitsBlockASemaphore(t *testing.T) {
	for _, prefix := range []string{"x-S0of3-", "x-S4of3-", "x-S1of-", "x-S1-", "x-S01of3-", "x-S+1of3-", "x-S1of1000001-", "x-T1of3-", "S1of3-", "x-H-"} {
		inWorld(t, func(w *world) {
			other, err := w.store.Connect(bg)
			require.NoError(w, err)
			node, err := other.Create(bg, "q", driver.NodeSpec{Prefix: prefix})
			require.NoError(w, err)
			c := w.client("h")
			_, err = c.Semaphore("q", 3).TryAcquire(bg, 1)
			require.ErrorIs(w, err, recipes.ErrLocked, prefix)
			require.NoError(w, other.Delete(bg, "q", node.Place, driver.Changed))
			require.NoError(w, other.Close())
		})
	}
}

// To wake a client already behind it, the new node must be renamed when
// granted.
func TestAGrantByAListThatShowsALaterNodeIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.clientOf(wrapped(w.store, func(s driver.Session) driver.Session { return behindSession{s} }), "a")
		l := w.won(c.acquire(bg, 1, 2))
		synctest.Wait()
		assert.Equal(w, "a-H1of2-0000000000", l.Node())
		w.unlock(l)
	})
}

type behindSession struct{ driver.Session }

func (s behindSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Behind = true
	return j, err
}
