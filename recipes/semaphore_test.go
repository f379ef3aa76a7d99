package recipes_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// acquire calls Acquire of a semaphore named q with n units.
func (c *client) acquire(ctx context.Context, weight, n int, opts ...recipes.Option) <-chan result {
	return going(func() (*recipes.Lock, error) { return c.Semaphore("q", n, opts...).Acquire(ctx, weight) })
}

func TestUnitsAreGrantedInOrderOfArrival(t *testing.T) {
	for _, wait := range []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchQueue(), recipes.Poll(time.Millisecond)} {
		t.Run(wait.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client("h", recipes.WithWait(wait))
				two, one := w.won(c.acquire(bg, 2, 5)), w.won(c.acquire(bg, 1, 5))
				many := c.acquire(bg, 4, 5)
				few := c.acquire(bg, 1, 5)
				w.waits(many)
				w.waits(few)
				_, err := c.Semaphore("q", 5).TryAcquire(bg, 1)
				require.ErrorIs(w, err, recipes.ErrLocked)
				w.unlock(two)
				time.Sleep(2 * time.Millisecond)
				held := w.won(many)
				w.waits(few)
				w.unlock(one)
				time.Sleep(2 * time.Millisecond)
				w.unlock(held, w.won(few))
			})
		})
	}
}

// A grant removes no node that the next waiter could watch. The granted node is
// therefore renamed, from S to H, to wake that waiter.
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

// The first waiter must watch all nodes ahead, because each holds units, and
// the release of any may free enough of them.
func TestTheFirstWaiterSeesTheReleaseOfAnyHolder(t *testing.T) {
	for released := range 3 {
		inWorld(t, func(w *world) {
			c := w.client("h")
			var held []*recipes.Lock
			for range 3 {
				held = append(held, w.won(c.acquire(bg, 1, 3)))
			}
			waiting := c.acquire(bg, 1, 3)
			w.waits(waiting)
			w.unlock(held[released])
			held[released] = w.won(waiting)
			w.unlock(held...)
		})
	}
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
		// The holder deletes its node. The first waiter lists the queue and
		// renames its node, and the next one lists the queue and sets a watch.
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

func TestASemaphoreOfAClosedClient(t *testing.T) {
	c := recipes.NewClient(memdriver.New())
	require.NoError(t, c.Close())
	s := c.Semaphore(`a"b`, 2)
	assert.Equal(t, `a"b`, s.Name())
	assert.Equal(t, `dlock.Semaphore("a\"b")`, fmt.Sprintf("%#v", s))
	_, err := s.Acquire(bg, 1)
	require.ErrorIs(t, err, recipes.ErrClosed)
	_, err = s.TryAcquire(bg, 1)
	require.ErrorIs(t, err, recipes.ErrClosed)
	_, err = s.Queue(bg)
	require.ErrorIs(t, err, recipes.ErrClosed)
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

func TestAReleaseIsNotPassedOnToAWriterBehindUnits(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("h")
		first, second := w.won(c.acquire(bg, 1, 2)), w.won(c.acquire(bg, 1, 2))
		writer := c.lock(bg)
		w.unlock(second)
		w.waits(writer)
		w.unlock(first)
		w.unlock(w.won(writer))
	})
}

// Every waiter must be served, whatever n the others use.
func TestClientsWithDifferentUnitsAreAllServed(t *testing.T) {
	inWorld(t, func(w *world) {
		var log safeLog
		logger := recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
		small, large := w.client("small", logger), w.client("large", logger)
		held := w.won(large.acquire(bg, 3, 5))
		var waiting []<-chan result
		for range 3 {
			waiting = append(waiting, small.acquire(bg, 1, 2), large.acquire(bg, 1, 5))
		}
		w.waits(waiting[0])
		w.unlock(w.won(waiting[1])) // 3+1+1 of 5 units, so the call need not wait
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

func TestUnitsAreLostWithTheirSession(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		all := w.won(b.acquire(bg, 2, 2))
		granted, waiting := a.acquire(bg, 1, 2), a.acquire(bg, 1, 2)
		w.unlock(all)
		settled, also := w.won(granted), w.won(waiting)
		behind := b.acquire(bg, 2, 2)
		w.waits(behind)
		w.store.Faults().Expire(a.session())
		w.unlock(w.won(behind))
		for _, l := range []*recipes.Lock{settled, also} {
			assert.True(w, isClosed(l.Lost()))
			require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		}
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

// A node is renamed when its units are granted, which wakes the next waiter. If
// the request or its reply is lost, it must be retried. Otherwise that waiter
// would wait although units are free.
func TestAMarkIsRepeatedUntilTheStoreAnswers(t *testing.T) {
	for _, committed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			a, b := w.client("a"), w.client("b")
			all := w.won(b.acquire(bg, 2, 2))
			first, second := a.acquire(bg, 1, 2), b.acquire(bg, 1, 2)
			w.lose(a.session(), faults.OpReplace, committed)
			w.unlock(all)
			held := w.won(first)
			time.Sleep(soon)
			w.unlock(held, w.won(second))
		})
	}
}

func TestHooksNameTheSemaphore(t *testing.T) {
	inWorld(t, func(w *world) {
		var seen []string
		note := func(hook, recipe string, mode recipes.Mode) {
			seen = append(seen, fmt.Sprint(hook, " ", recipe, " ", mode))
		}
		c := w.client("h", recipes.WithTrace(&recipes.Trace{
			Started:    func(_ context.Context, i recipes.StartedInfo) { note("started", i.Recipe, i.Mode) },
			Queued:     func(_ context.Context, i recipes.QueuedInfo) { note("queued", i.Recipe, 0) },
			Waiting:    func(_ context.Context, i recipes.WaitingInfo) { note("waiting", i.Recipe, 0) },
			Granted:    func(_ context.Context, i recipes.GrantedInfo) { note("granted", i.Recipe, i.Mode) },
			Released:   func(_ context.Context, i recipes.ReleasedInfo) { note("released", i.Recipe, i.Mode) },
			Failed:     func(_ context.Context, i recipes.FailedInfo) { note("failed", i.Recipe, i.Mode) },
			Downgraded: func(context.Context, recipes.DowngradedInfo) { note("downgraded", "", 0) },
		}))
		other := w.client("o")
		all := w.won(other.acquire(bg, 2, 2))
		first, behind := c.acquire(bg, 1, 2), other.acquire(bg, 1, 2)
		w.unlock(all)
		w.unlock(w.won(first), w.won(behind))
		_, err := c.Semaphore("q", 2).Acquire(bg, 3)
		require.Error(w, err)
		assert.Equal(w, []string{
			"started semaphore shared", "queued semaphore no mode", "waiting semaphore no mode",
			"granted semaphore shared", "released semaphore shared", "started semaphore shared", "failed semaphore shared",
		}, seen)
	})
}

// A node whose name does not have exactly the form of a semaphore's node must
// block the semaphore, because another program may hold the lock.
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

// If Create reports a later node, its client may already be waiting for the new
// node. The new node must therefore be renamed to -H at the grant, to wake that
// client.
func TestAGrantByAListThatShowsALaterNodeIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		store := behind{w.store}
		c := w.clientOf(store, "a")
		l := w.won(c.acquire(bg, 1, 2))
		synctest.Wait()
		assert.Equal(w, "a-H1of2-0000000000", l.Node())
		w.unlock(l)
	})
}

// behind is a store whose Create claims that there is a later node.
type behind struct{ driver.Connector }

type behindSession struct{ driver.Session }

func (b behind) Connect(ctx context.Context) (driver.Session, error) {
	s, err := b.Connector.Connect(ctx)
	return behindSession{s}, err
}

func (s behindSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Behind = true
	return j, err
}

// A waiter for all units is woken by each release. Each wake-up finds the queue
// changed, so the waiter must not slow down as it does after spurious ones.
func TestManyReleasesDoNotSlowAWaiterDown(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("h")
		var held []*recipes.Lock
		for range 10 {
			held = append(held, w.won(c.acquire(bg, 1, 10)))
		}
		all := c.acquire(bg, 10, 10)
		for _, l := range held {
			w.waits(all)
			w.unlock(l)
		}
		w.unlock(w.won(all))
	})
}
