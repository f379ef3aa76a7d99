package recipes_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func (w *world) wasLost(c *client, l *recipes.Lock, ctx context.Context) {
	w.Helper()
	require.ErrorIs(w, l.Err(), recipes.ErrLost)
	require.True(w, isClosed(l.Lost()))
	require.ErrorIs(w, ctx.Err(), context.Canceled)
	require.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)
	require.ErrorIs(w, w.failed(c.lock(ctx)), recipes.ErrLost)
	require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	require.ErrorIs(w, l.Unlock(), recipes.ErrLost, "a second Unlock")
	require.ErrorIs(w, l.Err(), recipes.ErrLost)
	require.ErrorIs(w, l.Err(), recipes.ErrNotHeld)
}

func TestTheEndOfTheSessionLosesTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		lost, ctx := l.Lost(), l.Context(bg)
		assert.False(w, isClosed(lost))
		w.store.Faults().Expire(c.session())
		assert.True(w, isClosed(lost))
		w.wasLost(c, l, ctx)
		w.unlock(w.won(c.lock(bg)))
	})
}

func TestEveryHoldLearnsOfTheLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer := w.won(c.lock(bg))
		inner := w.won(c.rlock(outer.Context(bg)))
		left := w.won(c.rlock(outer.Context(bg)))
		w.unlock(left)
		w.store.Faults().Expire(c.session())
		assert.True(w, isClosed(outer.Lost()))
		assert.True(w, isClosed(inner.Lost()))
		assert.False(w, isClosed(left.Lost()), "this Lock was unlocked before the loss")
		require.ErrorIs(w, left.Err(), recipes.ErrNotHeld)
		require.ErrorIs(w, left.Unlock(), recipes.ErrNotHeld)
		require.ErrorIs(w, inner.Unlock(), recipes.ErrLost)
		require.ErrorIs(w, outer.Unlock(), recipes.ErrLost)
	})
}

// slowParent is a context that blocks when its first child unregisters, until
// the channel open is closed.
type slowParent struct {
	context.Context
	stopped *atomic.Bool
	open    chan struct{}
}

func (p slowParent) Done() <-chan struct{} { return make(chan struct{}) }

func (p slowParent) AfterFunc(func()) (stop func() bool) {
	return func() bool {
		if !p.stopped.Swap(true) {
			<-p.open
		}
		return true
	}
}

// While the goroutine that noticed a loss is stuck, Err, Context and Unlock
// must still work.
func TestUnlockCancelsTheContextsOfALockThatIsBeingLost(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		parent := slowParent{bg, new(atomic.Bool), make(chan struct{})}
		defer close(parent.open)
		ctx := l.Context(parent)
		w.store.Faults().Expire(c.session())
		synctest.Wait()
		require.NoError(w, ctx.Err(), "the goroutine is held up")
		require.ErrorIs(w, context.Cause(l.Context(parent)), recipes.ErrLost)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.ErrorIs(w, ctx.Err(), context.Canceled)
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)
	})
}

func TestAPausedProcessLearnsTheTruthFromErr(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		ctx := l.Context(bg)
		w.store.Faults().Pause(c.session(), time.Hour)
		require.ErrorIs(w, l.Err(), recipes.ErrLost)
		w.wasLost(c, l, ctx)
	})
}

func TestALockAfterASleepConnectsAnewAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Retrying: func(_ context.Context, i recipes.RetryingInfo) {
			w.Errorf("it has tried again in %v: %v", i.Delay, i.Err)
		}}))
		m := c.RWMutex("q")
		w.unlock(w.won(c.lock(bg)))
		for _, enter := range []func(context.Context) (*recipes.Lock, error){m.Lock, m.RLock, m.TryLock, m.TryRLock} {
			before := c.session()
			w.store.Faults().Pause(before, time.Hour)
			l, err := enter(bg)
			require.NoError(w, err)
			require.NotSame(w, before, c.session())
			w.unlock(l)
		}
	})
}

func TestAPausedWaiterIsNotGranted(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		held := w.won(a.lock(bg))
		waiting := b.lock(bg)
		time.Sleep(soon)
		w.store.Faults().Pause(b.session(), time.Hour)
		w.unlock(held)
		time.Sleep(soon)
		l := w.won(waiting)
		assert.Equal(w, "b-W-0000000002", l.Node(), "the lock was granted on a new session")
		w.unlock(l)
	})
}

func TestACutOffHolderKnowsBeforeTheNextIsGranted(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		l := w.won(a.lock(bg))
		next := b.lock(bg)
		heal := w.store.Faults().CutOff(a.session())
		defer heal()
		<-l.Lost()
		w.waits(next)
		r := <-next
		require.NoError(w, r.err)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		w.unlock(r.lock)
	})
}

func TestWaitingOutlivesTheSession(t *testing.T) {
	for _, way := range []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchQueue(), recipes.Poll(time.Hour)} {
		t.Run(way.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.client("a"), w.client("b")
				held := w.won(a.lock(bg))
				waiting := b.lock(bg, recipes.WithWait(way))
				w.store.Faults().Expire(b.session())
				time.Sleep(soon)
				w.waits(waiting)
				assert.Equal(w, []string{"a-W-0000000000", "b-W-0000000002"}, w.names())
				w.unlock(held)
				if way == recipes.Poll(time.Hour) {
					time.Sleep(2 * time.Hour)
				}
				l := w.won(waiting)
				require.NoError(w, l.Err())
				w.unlock(l)
			})
		})
	}
}

func TestAnOperatorRemovesTheHeldNode(t *testing.T) {
	for _, held := range []time.Duration{0, time.Hour} {
		inWorld(t, func(w *world) {
			c := w.client("a")
			l := w.won(c.lock(bg))
			ctx := l.Context(bg)
			time.Sleep(held)
			w.store.Faults().RemoveNode("q", l.Node())
			began := time.Now()
			<-l.Lost()
			assert.LessOrEqual(w, time.Since(began), time.Second)
			w.wasLost(c, l, ctx)
		})
	}
}

func TestUnlockNoticesThatTheLockHadBeenTakenAway(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.won(w.client("a").lock(bg))
		w.store.Faults().RemoveNode("q", l.Node())
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.ErrorIs(w, l.Err(), recipes.ErrNotHeld)
	})
}

// The store may have ended the session, and granted the lock to another client,
// before the holder's next heartbeat. Whatever request learns of it first, the
// holder must be told of a loss.
func TestTheFirstAnswerOfAStoreThatEndedTheSessionIsALoss(t *testing.T) {
	unlock := (*recipes.Lock).Unlock
	for name, c := range map[string]struct {
		take func(*client) <-chan result
		call func(*recipes.Lock) error
	}{
		"unlock":           {func(c *client) <-chan result { return c.lock(bg) }, unlock},
		"unlock of units":  {func(c *client) <-chan result { return c.acquire(bg, 1, 1) }, unlock},
		"unlock of shared": {func(c *client) <-chan result { return c.rlock(bg) }, unlock},
		"set value":        {func(c *client) <-chan result { return c.lock(bg) }, func(l *recipes.Lock) error { return l.SetValue(bg, nil) }},
		"downgrade":        {func(c *client) <-chan result { return c.lock(bg) }, func(l *recipes.Lock) error { return l.Downgrade(bg) }},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var lost, released int
				a := w.client("a", recipes.WithTrace(&recipes.Trace{
					Lost:     func(context.Context, recipes.LostInfo) { lost++ },
					Released: func(context.Context, recipes.ReleasedInfo) { released++ },
				}))
				l := w.won(c.take(a))
				w.store.Faults().Drop(a.session())
				next := w.won(c.take(w.client("b")))
				err := c.call(l)
				require.ErrorIs(w, err, recipes.ErrLost)
				require.NotErrorIs(w, err, recipes.ErrUnlock)
				require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
				synctest.Wait()
				require.Equal(w, []int{1, 0}, []int{lost, released}, "the hooks Lost and Released")
				w.unlock(next)
			})
		})
	}
}

func TestAnOperatorRemovesAWaitingNode(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		held := w.won(a.lock(bg))
		waiting := b.lock(bg)
		w.store.Faults().RemoveNode("q", "b-W-0000000001")
		time.Sleep(soon)
		w.waits(waiting)
		assert.Equal(w, []string{"a-W-0000000000", "b-W-0000000002"}, w.names(), "the waiter queues again before the holder unlocks")
		w.unlock(held)
		w.unlock(w.won(waiting))
	})
}

func TestANodeThatVanishesAgainAndAgainMakesNoBusyLoop(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.clientOf(blind{w.store}, "a")
		held := w.won(w.client("h").lock(bg))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		before := w.store.Stats().Requests[faults.OpCreate]
		_, err := c.RWMutex("q").Lock(ctx)
		require.ErrorIs(w, err, recipes.ErrTimeout)
		assert.Less(w, w.store.Stats().Requests[faults.OpCreate]-before, int64(100))
		w.unlock(held)
		w.store.Faults().RemoveQueue("q")
	})
}

type blind struct{ driver.Connector }

func (b blind) Connect(ctx context.Context) (driver.Session, error) {
	s, err := b.Connector.Connect(ctx)
	return blindSession{s}, err
}

type blindSession struct{ driver.Session }

func (blindSession) List(context.Context, string) ([]driver.Node, error) { return nil, nil }

func TestAnOperatorRemovesTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		held := w.won(a.lock(bg))
		w1, w2 := b.lock(bg), c.rlock(bg)
		w.store.Faults().RemoveQueue("q")
		<-held.Lost()
		time.Sleep(soon)
		require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
		for range 2 {
			select {
			case r := <-w1:
				require.NoError(w, r.err)
				w.unlock(r.lock)
			case r := <-w2:
				require.NoError(w, r.err)
				w.unlock(r.lock)
			}
		}
	})
}

// After the queue was recreated, nodes of other clients may have the names of
// the old ones. Neither a holder nor a waiter may mistake such a node for its
// own.
func TestAnotherSessionsNodeOfTheSameNameIsNotTakenForTheOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c, d := w.client("h"), w.client("h"), w.client("h"), w.client("h")
		l := w.won(a.lock(bg))
		waiting := b.lock(bg)
		require.Equal(w, []string{"h-W-0000000000", "h-W-0000000001"}, w.names())

		// While cut off, the first two clients miss that the queue is removed
		// and that others create nodes of the same names.
		healA, healB := w.store.Faults().CutOff(a.session()), w.store.Faults().CutOff(b.session())
		w.store.Faults().RemoveQueue("q")
		l2, w2 := w.won(c.lock(bg)), d.lock(bg)
		w.waits(w2)
		require.Equal(w, []string{"h-W-0000000000", "h-W-0000000001"}, w.names())
		healA()
		healB()

		time.Sleep(soon)
		require.ErrorIs(w, l.Err(), recipes.ErrLost)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.NoError(w, l2.Err())
		w.waits(waiting)
		w.waits(w2)
		w.unlock(l2)
		second := w.won(w2)
		w.waits(waiting)
		w.unlock(second)
		w.unlock(w.won(waiting))
	})
}

func TestALateUnlockRemovesNoOtherNodeOfTheSameName(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("h"), w.client("h")
		l := w.won(a.lock(bg))
		w.store.Faults().RemoveQueue("q")
		l2 := w.won(b.lock(bg))
		require.Equal(w, l.Node(), l2.Node())
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.NoError(w, l2.Err())
		assert.Len(w, w.names(), 1)
		w.unlock(l2)
	})
}

func TestOneErrorOfTheStoreIsNoLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		w.store.Faults().LoseReply(c.session(), faults.OpWatch)
		w.store.Faults().LoseReply(c.session(), faults.OpRead)
		time.Sleep(time.Minute)
		require.NoError(w, l.Err())
		w.store.Faults().RemoveNode("q", l.Node())
		<-l.Lost()
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}

func TestALossIsLoggedAndTraced(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		var seen []recipes.LostInfo
		c := w.client("a", recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			recipes.WithTrace(&recipes.Trace{Lost: func(_ context.Context, i recipes.LostInfo) { seen = append(seen, i) }}))
		l := w.won(c.lock(bg))
		time.Sleep(3 * time.Second)
		w.store.Faults().Expire(c.session())
		synctest.Wait()
		require.Len(w, seen, 1)
		assert.Equal(w, "q", seen[0].Lock)
		assert.Equal(w, l.Node(), seen[0].Node)
		assert.Equal(w, 3*time.Second, seen[0].Held)
		require.ErrorIs(w, seen[0].Err, recipes.ErrLost)
		require.ErrorIs(w, seen[0].Err, driver.ErrSessionEnded)
		assert.Contains(w, log.String(), "lock lost")
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}

// stopping is a context that calls stop whenever a child unregisters.
type stopping struct {
	context.Context
	done chan struct{}
	stop func()
}

func (s stopping) Done() <-chan struct{} { return s.done }

func (s stopping) AfterFunc(func()) (stop func() bool) {
	return func() bool { s.stop(); return true }
}

// When Lost closes, contexts of the lock must already have ended, because
// callers may pass one to their next call.
func TestContextsEndBeforeALossIsShown(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		lost := l.Lost()
		var ctx context.Context
		early := 0
		ctx = l.Context(stopping{bg, make(chan struct{}), func() {
			select {
			case <-lost:
				if ctx.Err() == nil {
					early++
				}
			default:
			}
		}})
		w.store.Faults().Expire(c.session())
		<-lost
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)
		require.Zero(w, early)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}
