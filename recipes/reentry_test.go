package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/recipes"
)

func (w *world) requests() (n int64) {
	for _, count := range w.store.Stats().Requests {
		n += count
	}
	return n
}

func TestAnExclusiveHolderTakesTheLockAgainAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		m := c.RWMutex("q")
		outer := w.won(c.lock(bg))
		ctx := outer.Context(bg)
		before := w.requests()
		for _, enter := range []func(context.Context) (*recipes.Lock, error){m.Lock, m.RLock, m.TryLock, m.TryRLock} {
			inner, err := enter(ctx)
			require.NoError(w, err)
			assert.Equal(w, outer.Token(), inner.Token())
			assert.Equal(w, outer.Node(), inner.Node())
			w.unlock(inner)
			require.ErrorIs(w, inner.Unlock(), recipes.ErrNotHeld)
			require.NoError(w, outer.Err())
		}
		assert.Equal(w, before, w.requests())
		w.unlock(outer)
	})
}

type hookedContext struct {
	context.Context
	run func()
}

func (c hookedContext) Err() error {
	err := c.Context.Err()
	c.run()
	return err
}

func TestALockThatIsLostDuringAReentryIsNotTakenAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		ctx := hookedContext{l.Context(bg), sync.OnceFunc(func() {
			w.store.Faults().Expire(c.session())
			synctest.Wait()
		})}
		_, err := c.RWMutex("q").Lock(ctx)
		require.ErrorIs(w, err, recipes.ErrLost)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}

func TestAnUnlockedLockIsNotTakenAgainByReentry(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		ctx := l.Context(bg)
		w.unlock(l)
		err := w.failed(c.lock(ctx))
		require.ErrorIs(w, err, context.Canceled)
		require.ErrorIs(w, err, recipes.ErrNotHeld)

		again := w.won(c.lock(context.WithoutCancel(ctx)))
		assert.Greater(w, again.Token(), l.Token(), "this call is an ordinary acquisition, with a new token")
		w.unlock(again)

		l = w.won(c.lock(bg))
		again = w.won(c.lock(hookedContext{context.WithoutCancel(l.Context(bg)), func() { _ = l.Unlock() }}))
		assert.Greater(w, again.Token(), l.Token(), "unlocked while the call was about to enter")
		w.unlock(again)
	})
}

func TestAnotherLockOrClientDoesNotEnter(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		l := w.won(a.lock(bg))
		ctx := l.Context(bg)
		waiting := b.lock(ctx)
		w.waits(waiting)
		other, err := a.RWMutex("other").Lock(ctx)
		require.NoError(w, err)
		assert.NotEqual(w, l.Token(), other.Token())
		w.unlock(other, l)
		require.ErrorIs(w, w.failed(waiting), recipes.ErrNotHeld, "the call waits with the context of a lock that was unlocked")
	})
}

func TestTheOuterHoldIsFoundWhereTheInnerOneWasUnlocked(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer := w.won(c.lock(bg))
		inner := w.won(c.lock(outer.Context(bg)))
		ctx := context.WithoutCancel(inner.Context(outer.Context(bg)))
		w.unlock(inner)
		again := w.won(c.lock(ctx))
		assert.Equal(w, outer.Token(), again.Token())
		w.unlock(again, outer)
	})
}

func TestACancelledContextDoesNotEnterAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		ctx, cancel := context.WithCancel(l.Context(bg))
		cancel()
		require.ErrorIs(w, w.failed(c.lock(ctx)), context.Canceled)
		w.unlock(l)
	})
}

func TestWithLockUnlocksWhateverHappens(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		m := c.RWMutex("q")
		failure := errors.New("failure")
		require.NoError(w, m.WithLock(bg, func(ctx context.Context, _ *recipes.Lock) error {
			assert.Len(w, w.names(), 1)
			inner, err := m.Lock(ctx)
			require.NoError(w, err)
			return inner.Unlock()
		}))
		assert.Empty(w, w.names())
		assert.Equal(w, failure, m.WithRLock(bg, func(context.Context, *recipes.Lock) error { return failure }))
		assert.Empty(w, w.names())
		assert.PanicsWithValue(w, "boom", func() {
			_ = m.WithLock(bg, func(context.Context, *recipes.Lock) error { panic("boom") })
		})
		assert.Empty(w, w.names())
	})
}

func TestACallWithoutReentryWaitsForTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithTimeout(time.Minute))
		m := c.RWMutex("q")
		held := w.won(c.lock(bg))
		inside := held.Context(bg)
		nested := recipes.WithoutReentry(context.WithValue(held.Context(inside), callerKey{}, "x"))
		for _, ctx := range []context.Context{recipes.WithoutReentry(inside), nested} {
			_, err := m.TryLock(ctx)
			require.ErrorIs(w, err, recipes.ErrLocked)
			_, err = m.TryRLock(ctx)
			require.ErrorIs(w, err, recipes.ErrLocked)
		}
		assert.Equal(w, "x", nested.Value(callerKey{}), "the context keeps the other values of its parent")
		assert.Contains(w, fmt.Sprint(nested), ".WithoutReentry")

		waiting := c.lock(context.WithoutCancel(nested))
		w.waits(waiting)
		again := w.won(c.lock(inside))
		w.unlock(again, held)
		next := w.won(waiting)

		require.ErrorIs(w, context.Cause(nested), recipes.ErrNotHeld, "the context ends together with its parent")
		w.unlock(w.won(c.rlock(next.Context(recipes.WithoutReentry(bg)))), next)
	})
}

// Package context starts a goroutine for each child of a parent it does not
// know.
func TestAContextWithoutReentryStartsNoGoroutines(t *testing.T) {
	parent, cancel := context.WithCancel(bg)
	before := runtime.NumGoroutine()
	for range 100 {
		_, stop := context.WithCancel(recipes.WithoutReentry(parent))
		defer stop()
	}
	assert.Less(t, runtime.NumGoroutine(), before+50)
	cancel()
	assert.Error(t, recipes.WithoutReentry(parent).Err())
	var none context.Context
	assert.NoError(t, recipes.WithoutReentry(none).Err())
}
