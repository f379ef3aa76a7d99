package recipes_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
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

func TestTwoFailuresFarApartDoNotGiveUp(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("a").lock(bg))
		b := w.client("b")
		waiting := b.lock(bg)
		w.store.Faults().Expire(b.session())
		time.Sleep(2 * time.Minute)
		w.waits(waiting)
		w.store.Faults().Expire(b.session())
		time.Sleep(soon)
		w.waits(waiting)
		w.unlock(held)
		w.unlock(w.won(waiting))
	})
}

func TestUnlockOfTheLastExclusiveWithTheStoreSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer := w.won(c.lock(bg))
		inner := w.won(c.rlock(outer.Context(bg)))
		heal := w.store.Faults().CutOff(c.session())
		err := outer.Unlock()
		t.Log(err)
		heal()
		time.Sleep(soon)
		assert.ErrorIs(w, err, driver.ErrUnavailable)
		w.unlock(inner)
	})
}

func TestASecondUnlockAfterALossFoundByTheDowngrade(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer := w.won(c.lock(bg))
		inner := w.won(c.rlock(outer.Context(bg)))
		w.store.Faults().RemoveNode("q", outer.Node())
		require.ErrorIs(w, outer.Unlock(), recipes.ErrLost)
		assert.ErrorIs(w, inner.Unlock(), recipes.ErrLost)
		assert.ErrorIs(w, outer.Unlock(), recipes.ErrLost)
	})
}

func TestTheInnerUnlockMayOvertakeTheOuterOne(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer := w.won(c.lock(bg))
		inner := w.won(c.rlock(outer.Context(bg)))
		w.store.Faults().Delay(c.session(), 500*time.Millisecond)
		got := make(chan error, 1)
		go func() { got <- outer.Unlock() }()
		synctest.Wait()
		require.NoError(w, inner.Unlock())
		err := <-got
		w.store.Faults().Delay(c.session(), 0)
		time.Sleep(soon)
		assert.NoError(w, err)
	})
}

func TestADowngradeInterruptedByUnlockSaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		w.store.Faults().Delay(c.session(), 500*time.Millisecond)
		got := make(chan error, 1)
		go func() { got <- l.Downgrade(bg) }()
		synctest.Wait()
		require.NoError(w, l.Unlock())
		err := <-got
		w.store.Faults().Delay(c.session(), 0)
		time.Sleep(soon)
		assert.ErrorIs(w, err, recipes.ErrNotHeld)
		assert.NotErrorIs(w, err, context.Canceled)
	})
}

func TestEveryDowngradeOfALostLockSaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		heal := w.store.Faults().CutOff(c.session())
		one, two := make(chan error, 1), make(chan error, 1)
		go func() { one <- l.Downgrade(bg) }()
		synctest.Wait()
		go func() { two <- l.Downgrade(bg) }()
		synctest.Wait()
		w.store.Faults().Expire(c.session())
		e1, e2 := <-one, <-two
		heal()
		assert.ErrorIs(w, e1, recipes.ErrLost)
		assert.ErrorIs(w, e2, recipes.ErrLost)
		_ = l.Unlock()
	})
}

func TestReentriesDoNotPileUp(t *testing.T) {
	store := memdriver.New()
	c := recipes.NewClient(store)
	defer c.Close()
	m := c.RWMutex("q")
	l, err := m.Lock(bg)
	require.NoError(t, err)
	ctx := l.Context(bg)
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	for range 200_000 {
		in, err := m.Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, in.Unlock())
	}
	grown := int64(heap()) - int64(before)
	t.Logf("grown by %d bytes", grown)
	assert.Less(t, grown, int64(1<<20))
	require.NoError(t, l.Unlock())
}

func TestASlowHookDoesNotDelayTheLossOfOtherLocks(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Lost: func(context.Context, recipes.LostInfo) { time.Sleep(time.Minute) }}))
		l1, err := c.RWMutex("q1").Lock(bg)
		require.NoError(w, err)
		l2, err := c.RWMutex("q2").Lock(bg)
		require.NoError(w, err)
		lost1, lost2 := l1.Lost(), l2.Lost()
		w.store.Faults().Expire(c.session())
		assert.True(w, isClosed(lost1))
		assert.True(w, isClosed(lost2), "Lost of the second lock has to close, because its node is gone")
		time.Sleep(3 * time.Minute)
		_ = l1.Unlock()
		_ = l2.Unlock()
	})
}

func TestReentryPastTheDeadlineSaysWhen(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		ctx = l.Context(ctx)
		time.Sleep(2 * time.Second)
		_, err := c.RWMutex("q").Lock(ctx)
		require.ErrorIs(w, err, recipes.ErrTimeout)
		t.Log(err)
		assert.NotContains(w, err.Error(), "2562047h")
		w.unlock(l)
	})
}

func TestQueueInFlightWhileClosing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		w.store.Faults().Delay(c.session(), time.Second)
		got := make(chan error, 1)
		go func() { _, err := c.RWMutex("q").Queue(bg); got <- err }()
		synctest.Wait()
		_ = c.Close()
		err := <-got
		t.Log(err)
		assert.ErrorIs(w, err, recipes.ErrClosed)
	})
}

type script struct {
	waits []time.Duration
	asked *int
}

func (s *script) NextBackOff() time.Duration {
	*s.asked++
	if len(s.waits) == 0 {
		return time.Millisecond
	}
	d := s.waits[0]
	s.waits = s.waits[1:]
	return d
}
func (s *script) Reset() {}

func TestStopInTheQueueIsFinal(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		asked := 0
		c := w.clientOf(w.placeOnly(), "a",
			recipes.WithBackOff(func() recipes.BackOff { return &script{waits: []time.Duration{-1}, asked: &asked} }))
		w.store.Faults().LoseRequest(c.session(), faults.OpList)
		call := c.lock(bg)
		time.Sleep(soon)
		assert.Equal(w, 1, asked)
		select {
		case r := <-call:
			t.Log(r.err)
			assert.Equal(w, 1, strings.Count(r.err.Error(), "gave up"))
			w.unlock(held)
		default:
			assert.Fail(w, "the call goes on after the back-off has returned Stop")
			w.unlock(held)
			w.unlock(w.won(call))
		}
	})
}

func TestTheMessageOfGivingUpInTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		c := w.clientOf(w.placeOnly(), "a",
			recipes.WithBackOff(func() recipes.BackOff { return countingBackOff{-1, new(int)} }))
		w.store.Faults().LoseRequest(c.session(), faults.OpList)
		err := w.failed(c.lock(bg))
		t.Log(err)
		assert.Equal(w, 1, strings.Count(err.Error(), "gave up"))
		w.unlock(held)
	})
}

// hooked is a connector whose sessions call before at the start of each Watch.
// A test can use it to recreate the queue between a holder's List and Watch.
type hooked struct {
	driver.Connector
	before func(name string)
}
type hookedSession struct {
	driver.Session
	before func(name string)
}

func (h hooked) Connect(ctx context.Context) (driver.Session, error) {
	s, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return hookedSession{s, h.before}, nil
}
func (s hookedSession) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	s.before(p.Name)
	return s.Session.Watch(ctx, queue, p, ahead...)
}

func TestAHolderDoesNotTakeAnotherNodeOfTheSameNameForItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		other := w.client("h")
		theirsC := make(chan *recipes.Lock, 1)
		done := false
		a := w.clientOf(hooked{w.store, func(name string) {
			if !done {
				done = true
				w.store.Faults().RemoveQueue("q")
				theirs, err := other.RWMutex("q").Lock(bg)
				require.NoError(w, err)
				theirsC <- theirs
			}
		}}, "h")
		mine := w.won(a.lock(bg))
		time.Sleep(time.Hour)
		theirs := <-theirsC
		require.Equal(w, mine.Node(), theirs.Node())
		assert.NoError(w, theirs.Err())
		assert.ErrorIs(w, mine.Err(), recipes.ErrLost, "two callers hold the lock exclusively for an hour, and neither learns of a loss")
		_ = mine.Unlock()
		w.unlock(theirs)
	})
}

func TestAWaiterDoesNotTakeAnotherNodeOfTheSameNameForItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.won(w.client("h").lock(bg))
		o1, o2 := w.client("h"), w.client("h")
		var l1 *recipes.Lock
		var w2 <-chan result
		done := false
		b := w.clientOf(hooked{w.placeOnly(), func(name string) {
			if !done {
				done = true
				w.store.Faults().RemoveQueue("q")
				var err error
				l1, err = o1.RWMutex("q").Lock(bg)
				require.NoError(w, err)
				c := make(chan result, 1)
				go func() { l, err := o2.RWMutex("q").Lock(bg); c <- result{l, err} }()
				w2 = c
				time.Sleep(time.Millisecond)
			}
		}}, "h")
		waiting := b.lock(bg)
		time.Sleep(time.Minute)
		assert.Len(w, w.names(), 3, "the waiter has joined the queue again")
		_ = first.Unlock()
		w.unlock(l1)
		w.unlock((<-w2).lock)
		w.unlock((<-waiting).lock)
	})
}

func TestGrantedIsFollowedByALock(t *testing.T) {
	inWorld(t, func(w *world) {
		var granted, released atomic.Int32
		ctx, cancel := context.WithCancel(bg)
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Granted:  func(context.Context, recipes.GrantedInfo) { granted.Add(1); cancel() },
			Released: func(context.Context, recipes.ReleasedInfo) { released.Add(1) },
			Lost:     func(context.Context, recipes.LostInfo) { released.Add(1) },
		}))
		l, err := c.RWMutex("q").Lock(ctx)
		require.NoError(w, err)
		assert.EqualValues(w, 1, granted.Load())
		w.unlock(l)
		assert.EqualValues(w, 1, released.Load())
	})
}

func TestWhatWasUnlockedBeforeTheLossIsUnlocked(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer := w.won(c.lock(bg))
		inner := w.won(c.lock(outer.Context(bg)))
		ctx := inner.Context(bg)
		w.unlock(inner)
		w.store.Faults().Expire(c.session())
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrNotHeld)
		r := <-going(func() (*recipes.Lock, error) { return c.RWMutex("q").Lock(context.WithoutCancel(ctx)) })
		assert.NoError(w, r.err, "after Unlock, a context from WithoutCancel makes an ordinary acquisition")
		if r.lock != nil {
			_ = r.lock.Unlock()
		}
		_ = outer.Unlock()
	})
}

func TestDowngradesInAnOutageDoNotPileUp(t *testing.T) {
	inWorld(t, func(w *world) {
		var reaped atomic.Int32
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Reaped: func(_ context.Context, i recipes.ReapedInfo) { reaped.Add(1) }}))
		l := w.won(c.lock(bg))
		heal := w.store.Faults().CutOff(c.session())
		for range 100 {
			ctx, cancel := context.WithTimeout(bg, time.Millisecond)
			_ = l.Downgrade(ctx)
			cancel()
		}
		heal()
		time.Sleep(time.Minute)
		assert.LessOrEqual(w, reaped.Load(), int32(1))
		w.unlock(l)
	})
}

func TestADowngradeCutShortByALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.clientOf(w.store, "a")
		l := w.won(c.lock(bg))
		time.Sleep(soon)
		heal := w.store.Faults().CutOff(c.session())
		got := make(chan error, 1)
		go func() { got <- l.Downgrade(bg) }()
		synctest.Wait()
		w.store.Faults().RemoveNode("q", l.Node())
		heal()
		err := <-got
		t.Log(err)
		assert.ErrorIs(w, err, recipes.ErrLost)
		_ = l.Unlock()
	})
}

func TestDowngradedIsTracedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		n := 0
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Downgraded: func(context.Context, recipes.DowngradedInfo) { n++ }}))
		l := w.won(c.lock(bg))
		require.NoError(w, l.Downgrade(bg))
		require.NoError(w, l.Downgrade(bg))
		w.unlock(l)
		assert.Equal(w, 1, n)
	})
}

var _ = errors.Is
