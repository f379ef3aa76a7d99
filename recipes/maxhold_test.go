package recipes_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

const (
	maxHold = 8 * time.Minute
	takenAt = maxHold + maxHold/4
)

var limited = recipes.WithMaxHold(maxHold)

// until sleeps until the time began+d, and lets everything else that is due by
// then happen first.
func until(began time.Time, d time.Duration) {
	time.Sleep(time.Until(began.Add(d)))
	synctest.Wait()
}

func (w *world) overstayed(err error) {
	w.Helper()
	require.ErrorIs(w, err, recipes.ErrMaxHold)
	require.ErrorIs(w, err, recipes.ErrLost)
}

func TestAHoldIsLostAtItsLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l, began := w.won(c.lock(bg, limited)), time.Now()
		lost, ctx := l.Lost(), l.Context(bg)
		until(began, maxHold-1)
		require.NoError(w, l.Err())
		assert.False(w, isClosed(lost))

		until(began, maxHold)
		w.overstayed(l.Err())
		assert.True(w, isClosed(lost))
		w.overstayed(context.Cause(ctx))
		assert.EqualError(w, l.Err(), "dlock: q: a-W-0000000000: lock lost: held for longer than WithMaxHold allows: 8m0s")
		w.overstayed(l.Downgrade(bg))
		w.overstayed(w.failed(c.lock(ctx)))
		assert.Len(w, w.names(), 1, "the holder may still be working")

		next := w.client("b").lock(bg)
		w.waits(next)
		w.overstayed(l.Unlock())
		w.unlock(w.won(next))
		until(began, takenAt)
		w.overstayed(l.Unlock())
		assert.ErrorIs(w, l.Err(), recipes.ErrNotHeld)
	})
}

func TestALockOfAHolderThatHangsIsReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		l, began := w.won(w.client("a").lock(bg, limited)), time.Now()
		next := w.client("b").lock(bg)
		until(began, takenAt-1)
		w.waits(next)
		until(began, takenAt)
		got := w.won(next)
		require.Greater(w, got.Token(), l.Token())
		w.overstayed(l.Err())
		w.overstayed(l.Unlock())
		w.overstayed(l.Unlock())
		require.NoError(w, got.Err(), "a late Unlock releases nothing of the next holder")
		w.unlock(got)
	})
}

func TestUnlockEndsTheLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		losses := 0
		c := w.client("a", limited, recipes.WithTrace(&recipes.Trace{
			Lost: func(context.Context, recipes.LostInfo) { losses++ },
		}))
		l, began := w.won(c.lock(bg)), time.Now()
		until(began, maxHold-1)
		w.unlock(l)
		again := w.won(c.lock(bg))
		until(began, takenAt)
		require.NoError(w, again.Err(), "each grant has its own limit")
		w.unlock(again)
		until(began, 3*maxHold)
		assert.Zero(w, losses)
	})
}

func TestTheLostHookTellsTheLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		var all []recipes.LostInfo
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Lost:     func(_ context.Context, i recipes.LostInfo) { all = append(all, i) },
			Released: func(context.Context, recipes.ReleasedInfo) { w.Error("not released while held") },
		}))
		l, began := w.won(c.lock(bg, limited)), time.Now()
		until(began, takenAt)
		w.overstayed(l.Unlock())
		synctest.Wait()
		require.Len(w, all, 1)
		w.overstayed(all[0].Err)
		assert.Equal(w, maxHold, all[0].Held)
	})
}

// A re-entry must share the limit of the outer hold. The node stays until both
// have called Unlock.
func TestReentryDoesNotExtendTheLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", limited)
		outer, began := w.won(c.lock(bg)), time.Now()
		until(began, maxHold/2)
		inner := w.won(c.lock(outer.Context(bg)))
		until(began, maxHold)
		w.overstayed(outer.Err())
		w.overstayed(inner.Err())
		w.overstayed(outer.Unlock())
		assert.Len(w, w.names(), 1)
		w.overstayed(inner.Unlock())
		assert.Empty(w, w.names())
	})
}

func TestADowngradeDoesNotExtendTheLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		l, began := w.won(w.client("a").lock(bg, limited)), time.Now()
		until(began, maxHold/2)
		require.NoError(w, l.Downgrade(bg))
		until(began, maxHold)
		w.overstayed(l.Err())
		next := w.client("b").lock(bg)
		w.waits(next)
		until(began, takenAt)
		w.unlock(w.won(next))
		w.overstayed(l.Unlock())
	})
}

func TestWithLockEndsAtTheLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		began := time.Now()
		err := w.client("a").RWMutex("q", limited).WithLock(bg, func(ctx context.Context, _ *recipes.Lock) error {
			<-ctx.Done()
			assert.Equal(w, maxHold, time.Since(began))
			return context.Cause(ctx)
		})
		w.overstayed(err)
		assert.Empty(w, w.names())
	})
}

// After a holder hangs, the next one must get a greater token, so that the
// protected resource can tell them apart and the
// full time limit.
func TestTheLimitOfOneGoroutineOfAClient(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", limited)
		l, began := w.won(c.lock(bg)), time.Now()
		next := c.lock(bg)
		until(began, takenAt-1)
		w.waits(next)
		w.overstayed(l.Err())
		until(began, takenAt)
		got := w.won(next)
		assert.Greater(w, got.Token(), l.Token())
		w.overstayed(l.Unlock())
		until(began, takenAt+maxHold-1)
		require.NoError(w, got.Err())
		w.unlock(got)
		require.NoError(w, c.Close())
	})
}

// If the holder of units exceeds the limit, a waiter must get them.
func TestUnitsHaveALimit(t *testing.T) {
	inWorld(t, func(w *world) {
		l, began := w.won(w.client("a").acquire(bg, 2, 3, limited)), time.Now()
		next := w.client("b").acquire(bg, 2, 3)
		until(began, takenAt-1)
		w.overstayed(l.Err())
		w.waits(next)
		until(began, takenAt)
		w.unlock(w.won(next))
		w.overstayed(l.Unlock())
	})
}

// If the session ends before the limit is reached, the lock was lost because of
// the session, so errors must not match ErrMaxHold.
func TestAnEarlierLossIsTheOneReported(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l, began := w.won(c.lock(bg, limited)), time.Now()
		w.store.Faults().Expire(c.session())
		until(began, 2*maxHold)
		require.ErrorIs(w, l.Err(), recipes.ErrLost)
		require.NotErrorIs(w, l.Err(), recipes.ErrMaxHold)
		require.NotErrorIs(w, l.Unlock(), recipes.ErrMaxHold)
	})
}

func TestASessionThatEndsAfterTheLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l, began := w.won(c.lock(bg, limited)), time.Now()
		until(began, maxHold)
		w.store.Faults().Expire(c.session())
		until(began, 2*maxHold)
		w.overstayed(l.Err())
		w.overstayed(l.Unlock())
		w.unlock(w.won(c.lock(bg)))
	})
}

// If the request to delete the node of a holder that hangs is lost, it must be
// retried, or the lock would stay taken.
func TestTheReleaseOfAHolderThatHangsIsRepeated(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l, began := w.won(c.lock(bg, limited)), time.Now()
		w.lose(c.session(), faults.OpDelete, false)
		until(began, takenAt+soon)
		assert.Empty(w, w.names())
		w.overstayed(l.Unlock())
	})
}

func TestCloseBeforeTheLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l, began := w.won(c.lock(bg, limited)), time.Now()
		require.NoError(w, c.Close())
		until(began, 2*maxHold)
		require.ErrorIs(w, l.Err(), recipes.ErrClosed)
		require.NotErrorIs(w, l.Unlock(), recipes.ErrMaxHold)
	})
}

func TestNoLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, d := range []time.Duration{0, -1, math.MinInt64, math.MaxInt64} {
			l := w.won(w.client("a").lock(bg, limited, recipes.WithMaxHold(d)))
			until(time.Now(), 2*maxHold)
			w.unlock(l)
		}
	})
}

// One timer marks a held lock as lost, and a later one releases it. If a slow
// hook delays both, either may run first, and the next waiter must get the lock
// in any case.
func TestAHolderThatHangsIsReleasedByALateTimer(t *testing.T) {
	for range 20 {
		inWorld(t, func(w *world) {
			const limit = time.Second
			slow := recipes.WithTrace(&recipes.Trace{Granted: func(context.Context, recipes.GrantedInfo) { time.Sleep(2 * limit) }})
			held := w.client("a", slow).lock(bg, recipes.WithMaxHold(limit))
			next := w.client("b").lock(bg)
			until(time.Now(), 2*limit)
			got := w.won(next)
			w.overstayed((<-held).lock.Unlock())
			w.unlock(got)
		})
	}
}
