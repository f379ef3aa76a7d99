package recipes_test

import (
	"context"
	"fmt"
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

func TestAnExclusiveLockExcludesOtherHolders(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		held := w.won(a.lock(bg))
		writer, reader := b.lock(bg), c.rlock(bg)
		w.waits(writer)
		w.waits(reader)
		w.unlock(held)
		second := w.won(writer)
		w.waits(reader)
		w.unlock(second)
		w.unlock(w.won(reader))
	})
}

func TestSharedHoldTogetherAndKeepWritersOut(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		r1, r2 := w.won(a.rlock(bg)), w.won(b.rlock(bg))
		writer := c.lock(bg)
		w.unlock(r1)
		w.waits(writer)
		w.unlock(r2)
		w.unlock(w.won(writer))
	})
}

func TestNodesAreNamedAfterHostAndMode(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("web1"), w.client("rack 2/3")
		l := w.won(a.lock(bg))
		r := b.rlock(bg)
		assert.Equal(w, []string{"web1-W-0000000000", "rack%202%2F3-R-0000000001"}, w.names())
		assert.Equal(w, "web1-W-0000000000", l.Node())
		assert.Equal(w, recipes.Exclusive, l.Mode())
		w.unlock(l)
		l = w.won(r)
		assert.Equal(w, recipes.Shared, l.Mode())
		w.unlock(l)
	})
}

func TestGrantsInOrderOfArrival(t *testing.T) {
	for _, wait := range []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchQueue(), recipes.Poll(time.Second)} {
		t.Run(wait.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				held := w.won(w.client("h").lock(bg))
				var queue []<-chan result
				for i := range 5 {
					queue = append(queue, w.client(fmt.Sprint("c", i)).lock(bg, recipes.WithWait(wait)))
				}
				for _, next := range queue {
					w.waits(next)
					w.unlock(held)
					time.Sleep(2 * time.Second) // for a polling waiter to list the queue again
					held = w.won(next)
				}
				w.unlock(held)
			})
		})
	}
}

func TestReaderBehindAQueuedWriterWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		held := w.won(a.rlock(bg))
		writer := b.lock(bg)
		reader := c.rlock(bg)
		w.waits(reader)
		w.unlock(held)
		second := w.won(writer)
		w.waits(reader)
		w.unlock(second)
		w.unlock(w.won(reader))
	})
}

func TestReadersQueuedTogetherEnterTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("w").lock(bg))
		var readers []<-chan result
		for i := range 4 {
			readers = append(readers, w.client(fmt.Sprint("r", i)).rlock(bg))
		}
		later := w.client("w2").lock(bg)
		w.unlock(held)
		var locks []*recipes.Lock
		for _, r := range readers {
			locks = append(locks, w.won(r))
		}
		w.waits(later)
		w.unlock(locks...)
		w.unlock(w.won(later))
	})
}

func TestOneReleaseWakesOneWriter(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		var queue []<-chan result
		for i := range 50 {
			queue = append(queue, w.client(fmt.Sprint("c", i)).lock(bg))
		}
		time.Sleep(soon) // until the holder watches its own node
		before := w.store.Stats()
		w.unlock(held)
		held = w.won(queue[0])
		after := w.store.Stats()
		assert.EqualValues(w, 1, after.Requests[faults.OpDelete]-before.Requests[faults.OpDelete])
		assert.Zero(w, after.Requests[faults.OpList]-before.Requests[faults.OpList])
		assert.Zero(w, after.Requests[faults.OpWatch]-before.Requests[faults.OpWatch])
		w.unlock(held)
		for _, c := range queue[1:] {
			w.unlock(w.won(c))
		}
	})
}

func TestAFreeLockTakesTwoRequests(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		before := w.store.Stats()
		w.unlock(w.won(c.lock(bg)))
		w.unlock(w.won(c.rlock(bg)))
		assert.Equal(w, map[faults.Op]int64{faults.OpCreate: 2, faults.OpDelete: 2}, w.spent(before))
	})
}

// The release of a lock must grant it to the next waiter without further
// requests, even if the holder had it too briefly to watch its node.
func TestTheReleaseOfABriefHoldGrantsTheLockToTheNextWaiter(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("a").lock(bg))
		next := w.client("b").lock(bg)
		w.waits(next)
		before := w.store.Stats()
		w.unlock(held)
		after := w.won(next)
		assert.Equal(w, map[faults.Op]int64{faults.OpDelete: 1}, w.spent(before))
		w.unlock(after)
	})
}

func TestTokensRise(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		last := int64(-1)
		for i := range 100 {
			c := []*client{a, b}[i%2]
			l := w.won(c.lock(bg))
			require.Greater(w, l.Token(), last)
			last = l.Token()
			w.unlock(l)
			if i%10 == 0 {
				w.store.Faults().RemoveQueue("q")
			}
		}
	})
}

func TestTryLockNeverWaitsAndLeavesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		q := b.RWMutex("q")
		held := w.won(a.rlock(bg))
		_, err := q.TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		assert.ErrorContains(w, err, "q: locked by another contender")
		shared, err := q.TryRLock(bg)
		require.NoError(w, err)
		w.unlock(held)
		w.unlock(shared)

		exclusive, err := q.TryLock(bg)
		require.NoError(w, err)
		_, err = a.RWMutex("q").TryRLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		assert.Len(w, w.names(), 1)
		w.unlock(exclusive)
	})
}

func TestTryLockWritesNothingIfTheLockIsHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		held := w.won(a.lock(bg))
		before := w.store.Stats()
		_, err := b.RWMutex("q").TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		after := w.store.Stats()
		assert.Zero(w, after.Requests[faults.OpCreate]-before.Requests[faults.OpCreate])
		assert.EqualValues(w, 1, after.Requests[faults.OpList]-before.Requests[faults.OpList])
		w.unlock(held)
	})
}

func TestATimeoutNamesTheHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("web3").lock(bg))
		r := w.client("r").rlock(bg)
		c := w.client("me")
		began := time.Now()
		_, err := c.RWMutex("q", recipes.WithTimeout(5*time.Second)).Lock(bg)
		assert.Equal(w, 5*time.Second, time.Since(began))
		require.ErrorIs(w, err, recipes.ErrTimeout)
		require.ErrorIs(w, err, context.DeadlineExceeded)
		assert.EqualError(w, err, "dlock: q: timed out after 5s: held by web3-W-0000000000 as of 5s ago, 2 ahead")
		assert.Equal(w, []string{"web3-W-0000000000", "r-R-0000000001"}, w.names())
		w.unlock(held)
		w.unlock(w.won(r))
	})
}

func TestTheEarlierOfDeadlineAndTimeoutCounts(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		q := w.client("me").RWMutex("q", recipes.WithTimeout(5*time.Second))
		ctx, cancel := context.WithTimeout(bg, 2*time.Second)
		defer cancel()
		_, err := q.RLock(ctx)
		require.ErrorIs(w, err, recipes.ErrTimeout)
		assert.ErrorContains(w, err, "timed out after 2s: held by h-W-0000000000, 1 ahead")
		w.unlock(held)
	})
}

func TestTheTimeoutDoesNotStartAgainWithAWakeUp(t *testing.T) {
	inWorld(t, func(w *world) {
		var queue []<-chan result
		for i := range 4 {
			queue = append(queue, w.client(fmt.Sprint("c", i)).lock(bg))
		}
		me := w.client("me")
		began := time.Now()
		waiting := me.rlock(bg, recipes.WithTimeout(5*time.Second), recipes.WithWait(recipes.WatchQueue()))
		for _, c := range queue[:2] {
			time.Sleep(2 * time.Second)
			w.unlock(w.won(c))
		}
		r := <-waiting
		require.ErrorIs(w, r.err, recipes.ErrTimeout)
		assert.Equal(w, 5*time.Second, time.Since(began))
		for _, c := range queue[2:] {
			w.unlock(w.won(c))
		}
	})
}

func TestCancelReturnsTheErrorOfTheContextAndLeavesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		ctx, cancel := context.WithCancel(bg)
		waiting := w.client("me").lock(ctx)
		w.waits(waiting)
		cancel()
		err := w.failed(waiting)
		require.ErrorIs(w, err, context.Canceled)
		require.NotErrorIs(w, err, recipes.ErrTimeout)
		assert.EqualError(w, err, "dlock: q: context canceled")
		assert.Len(w, w.names(), 1)
		w.unlock(held)
	})
}

func TestACancelledContextSendsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("me")
		ctx, cancel := context.WithCancel(bg)
		cancel()
		before := w.store.Stats()
		_, err := c.RWMutex("q").Lock(ctx)
		require.ErrorIs(w, err, context.Canceled)
		assert.Equal(w, before, w.store.Stats())
	})
}

func TestManyTimedOutWaitsLeaveNoWatch(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		q := w.client("me").RWMutex("q", recipes.WithTimeout(time.Second))
		for range 1000 {
			_, err := q.Lock(bg)
			require.ErrorIs(w, err, recipes.ErrTimeout)
		}
		synctest.Wait()
		assert.LessOrEqual(w, w.store.Stats().Watches, 1, "only the holder's watch of its own node may be open")
		assert.Len(w, w.names(), 1)
		w.unlock(held)
	})
}

func TestAWaiterInTheMiddleThatGivesUpGrantsNothingEarly(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		held := w.won(a.lock(bg))
		ctx, cancel := context.WithCancel(bg)
		middle := b.lock(ctx)
		last := c.lock(bg)
		cancel()
		require.ErrorIs(w, w.failed(middle), context.Canceled)
		w.waits(last)
		time.Sleep(soon)
		w.waits(last)
		w.unlock(held)
		w.unlock(w.won(last))
	})
}

func TestForeignNodes(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("me")
		for _, name := range []string{"README", "tmp-x"} {
			require.NoError(w, w.store.Faults().PutNode("q", name, nil))
		}
		w.unlock(w.won(c.lock(bg)))

		require.NoError(w, w.store.Faults().PutNode("q", "other-X-0000000500", nil))
		writer, reader := c.lock(bg), c.rlock(bg)
		w.waits(writer)
		w.waits(reader)
		w.store.Faults().RemoveNode("q", "other-X-0000000500")
		w.unlock(w.won(writer))
		w.unlock(w.won(reader))
		w.store.Faults().RemoveQueue("q")
	})
}

func TestSequencesAreComparedAsNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: memdriver.New(memdriver.WithSequenceStart(9_999_999_998))}
		held := w.won(w.client("a").lock(bg))
		var queue []<-chan result
		for i := range 3 {
			queue = append(queue, w.client(fmt.Sprint("c", i)).lock(bg))
		}
		assert.Equal(t, "c1-W-10000000000", w.names()[2])
		for _, c := range queue {
			w.waits(c)
			w.unlock(held)
			held = w.won(c)
		}
		w.unlock(held)
	})
}

func TestQueueShowsHoldersAndWaiters(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a", recipes.WithData([]byte("order 42"))), w.client("b"), w.client("c")
		l1 := w.won(a.rlock(bg))
		l2 := w.won(b.rlock(bg))
		waiting := c.lock(bg)
		queue, err := a.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		require.Len(w, queue, 3)
		assert.Equal(w, "a-R-0000000000", queue[0].Node)
		assert.Equal(w, recipes.Shared, queue[0].Mode)
		assert.Equal(w, []bool{true, true, false}, []bool{queue[0].Holds, queue[1].Holds, queue[2].Holds})
		assert.Equal(w, recipes.Exclusive, queue[2].Mode)
		assert.Equal(w, "order 42", queue[0].Record.Data)
		assert.Equal(w, l2.Token(), queue[1].Token)
		assert.NotEmpty(w, queue[0].Owner)
		assert.NotEqual(w, queue[0].Record.ID, queue[1].Record.ID)
		assert.True(w, queue[0].Record.Since.Equal(time.Now()))
		w.unlock(l1, l2)
		w.unlock(w.won(waiting))
	})
}

func TestQueueTakesHostileRecordsForEmptyOnes(t *testing.T) {
	inWorld(t, func(w *world) {
		require.NoError(w, w.store.Faults().PutNode("q", "evil-W-0000000001", []byte("\x1b[2J{\"pid\":")))
		queue, err := w.client("a").RWMutex("q").Queue(bg)
		require.NoError(w, err)
		require.Len(w, queue, 1)
		assert.Equal(w, recipes.Record{}, queue[0].Record)
		w.store.Faults().RemoveQueue("q")
	})
}

func TestBadNames(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		for _, name := range []string{"", "/q", "a//b", "a/../b", "x\n"} {
			m := c.RWMutex(name)
			_, err := m.Lock(bg)
			require.ErrorIs(w, err, recipes.ErrBadName, "%q", name)
			_, err = m.RLock(bg)
			require.ErrorIs(w, err, recipes.ErrBadName)
			_, err = m.TryLock(bg)
			require.ErrorIs(w, err, recipes.ErrBadName)
			_, err = m.TryRLock(bg)
			require.ErrorIs(w, err, recipes.ErrBadName)
			_, err = m.Queue(bg)
			require.ErrorIs(w, err, recipes.ErrBadName)
			never := func(context.Context, *recipes.Lock) error { panic("called") }
			require.ErrorIs(w, m.WithLock(bg, never), recipes.ErrBadName)
			require.ErrorIs(w, m.WithRLock(bg, never), recipes.ErrBadName)
		}
		s := w.store.Stats()
		assert.Zero(w, s.Queues)
	})
}

func TestANilContextIsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		m := c.RWMutex("q")
		var none context.Context
		_, err := m.Lock(none)
		require.EqualError(w, err, "dlock: q: nil context")
		_, err = m.TryRLock(none)
		require.Error(w, err)
		require.Error(w, m.WithLock(none, nil))
		_, err = m.Queue(none)
		require.Error(w, err)
		require.Error(w, c.Ping(none))
		l := w.won(c.lock(bg))
		require.Error(w, l.Downgrade(none))
		require.NotNil(w, l.Context(none))
		w.unlock(l)
	})
}

func TestUnlockTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.won(w.client("a").lock(bg))
		lost := l.Lost()
		ctx := l.Context(bg)
		w.unlock(l)
		require.ErrorIs(w, l.Unlock(), recipes.ErrNotHeld)
		require.ErrorIs(w, l.Err(), recipes.ErrNotHeld)
		require.NotErrorIs(w, l.Err(), recipes.ErrLost)
		require.ErrorIs(w, ctx.Err(), context.Canceled)
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrNotHeld)
		require.ErrorIs(w, l.Downgrade(bg), recipes.ErrNotHeld)
		assert.False(w, isClosed(lost))
		assert.False(w, isClosed(l.Lost()))
		late := l.Context(bg)
		require.ErrorIs(w, context.Cause(late), recipes.ErrNotHeld)
	})
}

func TestTwoMutexesOfOneNameOnOneSessionExclude(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		held := w.won(c.lock(bg))
		second := c.lock(bg)
		w.waits(second)
		w.unlock(held)
		w.unlock(w.won(second))
	})
}

func TestErrorsOfTheStoreThatWillNotPassAreNotRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		var retries int
		c := w.clientOf(refusing{w.store}, "a", recipes.WithTrace(&recipes.Trace{
			Retrying: func(context.Context, recipes.RetryingInfo) { retries++ },
		}))
		_, err := c.RWMutex("q").Lock(bg)
		require.ErrorIs(w, err, errRefused)
		assert.ErrorContains(w, err, "dlock: q: ")
		assert.Zero(w, retries)
	})
}

var errRefused = fmt.Errorf("no permission")

// refusing is a store in which clients may not create nodes.
type refusing struct{ driver.Connector }

func (r refusing) Connect(ctx context.Context) (driver.Session, error) {
	s, err := r.Connector.Connect(ctx)
	return refusingSession{s}, err
}

type refusingSession struct{ driver.Session }

func (refusingSession) Create(context.Context, string, driver.NodeSpec) (driver.Joined, error) {
	return driver.Joined{}, errRefused
}
