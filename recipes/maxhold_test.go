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

// until sleeps until began+d, and lets everything that is due by then happen.
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
	locks := func(c *client) <-chan result { return c.lock(bg, limited) }
	for name, c := range map[string]struct {
		take  func(c *client) <-chan result
		after func(w *world, c *client, l *recipes.Lock) // called when half the limit has passed
	}{
		"lock":          {take: locks},
		"units":         {take: func(c *client) <-chan result { return c.acquire(bg, 2, 3, limited) }},
		"downgraded":    {locks, func(w *world, _ *client, l *recipes.Lock) { require.NoError(w, l.Downgrade(bg)) }},
		"a lost Delete": {locks, func(w *world, c *client, _ *recipes.Lock) { w.lose(c.session(), faults.OpDelete, false) }},
		"an ended session": {locks, func(w *world, c *client, _ *recipes.Lock) {
			time.AfterFunc(maxHold/2+soon, func() { w.store.Faults().Expire(c.session()) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var lost []recipes.LostInfo
				a := w.client("a", recipes.WithTrace(&recipes.Trace{
					Lost:     func(_ context.Context, i recipes.LostInfo) { lost = append(lost, i) },
					Released: func(context.Context, recipes.ReleasedInfo) { w.Error("not released while held") },
				}))
				b := w.client("b")
				l, began := w.won(c.take(a)), time.Now()
				next := c.take(b)
				until(began, maxHold/2)
				if c.after != nil {
					c.after(w, a, l)
				}
				until(began, maxHold)
				w.overstayed(l.Err())
				if name != "an ended session" {
					until(began, takenAt-1)
					w.waits(next)
				}
				until(began, takenAt+soon)
				got := w.won(next)
				require.Greater(w, got.Token(), l.Token())
				w.overstayed(l.Unlock())
				w.overstayed(l.Unlock())
				require.NoError(w, got.Err(), "a late Unlock releases nothing of the next holder")
				w.unlock(got)
				require.Len(w, lost, 1)
				w.overstayed(lost[0].Err)
				assert.Equal(w, maxHold, lost[0].Held)
				assert.Equal(w, "max_hold", lost[0].Reason())
			})
		})
	}
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

func TestAnEarlierLossIsTheOneReported(t *testing.T) {
	for how, lose := range losses {
		inWorld(t, func(w *world) {
			c := w.client("a")
			l, began := w.won(c.lock(bg, limited)), time.Now()
			time.Sleep(soon)
			lose(w, c, "q")
			until(began, 2*maxHold)
			w.Log(how)
			require.ErrorIs(w, l.Err(), recipes.ErrLost)
			require.NotErrorIs(w, l.Err(), recipes.ErrMaxHold)
			require.NotErrorIs(w, l.Unlock(), recipes.ErrMaxHold)
		})
	}
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

// Both timers are late, so the lock may be released before it counts as lost.
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
