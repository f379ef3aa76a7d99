package recipes_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/recipes"
)

func TestWithLockPassesItsLockInTheContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		for name, with := range c.with() {
			require.NoError(w, with(bg, func(ctx context.Context, _ *recipes.Lock) error {
				l := recipes.FromContext(ctx)
				require.NoError(w, l.Err())
				assert.Equal(w, name == "WithLock", l.Mode() == recipes.Exclusive)
				assert.Positive(w, l.Token())
				return nil
			}))
		}
	})
}

func TestFromContextReturnsTheNearestLock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		q := w.won(c.lock(bg))
		other, err := c.RWMutex("other").Lock(bg)
		require.NoError(w, err)

		ctx := q.Context(bg)
		assert.Same(w, q, recipes.FromContext(ctx))
		assert.Same(w, q, recipes.FromContext(context.WithValue(ctx, callerKey{}, "child")))
		both := other.Context(ctx)
		assert.Same(w, other, recipes.FromContext(both))
		assert.Same(w, q, recipes.FromContext(q.Context(both)))

		again := w.won(c.lock(ctx))
		assert.Same(w, again, recipes.FromContext(again.Context(ctx)))
		w.unlock(again, q, other)
		assert.Same(w, other, recipes.FromContext(both), "also after Unlock")
	})
}

func TestFromContextFindsNoLock(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.won(w.client("a").lock(bg))
		outside := recipes.WithoutReentry(l.Context(bg))
		for _, ctx := range []context.Context{nil, bg, new(recipes.Lock).Context(bg), outside} {
			found := recipes.FromContext(ctx)
			assert.Nil(w, found)
			assert.ErrorIs(w, found.Err(), recipes.ErrNotHeld)
			assert.Zero(w, found.Token())
		}
		assert.Same(w, l, recipes.FromContext(l.Context(outside)))
		w.unlock(l)
	})
}

func TestTheContextOfALockPrintsNoInsides(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.won(w.client("a").lock(bg))
		assert.Equal(w, "context.Background.WithCancel.WithLock(q)", fmt.Sprint(l.Context(bg)))
		w.unlock(l)
	})
}
