package recipes_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/faults"
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

// When a lock is lost, its contexts are cancelled. Their error is just
// context.Canceled, so a call that fails because of such a context must add
// ErrLost to its error.
func TestEveryCallWithTheContextOfALostLockTellsOfTheLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) (f faults.Fault) {
			if r.Op == faults.OpReplace {
				f.Delay = time.Second // otherwise a Downgrade may succeed first
			}
			return f
		}), "a")
		l := w.won(c.lock(bg))
		ctx := l.Context(bg)
		w.store.Faults().RemoveNode("q", l.Node())
		time.Sleep(soon) // until the client watches the node and finds it gone
		require.ErrorIs(w, ctx.Err(), context.Canceled)
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)

		calls := map[string]func(context.Context) error{"Ping": c.Ping, "Downgrade": func(ctx context.Context) error {
			mine, err := c.RWMutex("mine").Lock(bg)
			require.NoError(w, err)
			err = mine.Downgrade(ctx)
			_ = mine.Unlock() // may return before the Replace in flight
			time.Sleep(time.Minute)
			return err
		}}
		for _, lock := range []string{"q", "other"} {
			m := c.RWMutex(lock)
			for name, take := range map[string]func(context.Context) (*recipes.Lock, error){
				"Lock": m.Lock, "RLock": m.RLock, "TryLock": m.TryLock, "TryRLock": m.TryRLock,
			} {
				calls[name+" "+lock] = func(ctx context.Context) error {
					_, err := take(ctx)
					return err
				}
			}
			nothing := func(context.Context, *recipes.Lock) error { return nil }
			calls["WithLock "+lock] = func(ctx context.Context) error { return m.WithLock(ctx, nothing) }
			calls["WithRLock "+lock] = func(ctx context.Context) error { return m.WithRLock(ctx, nothing) }
			calls["Queue "+lock] = func(ctx context.Context) error {
				_, err := m.Queue(ctx)
				return err
			}
		}
		for name, call := range calls {
			for kind, ctx := range map[string]context.Context{"held": ctx, "outside": recipes.WithoutReentry(ctx)} {
				assert.ErrorIs(w, call(ctx), recipes.ErrLost, "%s, %s", name, kind)
			}
		}
		assert.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}
