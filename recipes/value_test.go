package recipes_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func (w *world) wantValue(c *client, value string, token int64) {
	w.Helper()
	got, by, err := c.RWMutex("q").Value(bg)
	require.NoError(w, err)
	require.Equal(w, value, string(got))
	require.Equal(w, token, by)
}

func TestAValueOutlivesTheLockAndTheClient(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		w.wantValue(b, "", 0)
		held := w.won(a.lock(bg))
		require.NoError(w, held.SetValue(bg, []byte("one")))
		require.NoError(w, held.SetValue(bg, []byte("two")))
		w.wantValue(b, "two", held.Token())
		w.unlock(held)
		require.NoError(w, a.Close())
		w.wantValue(b, "two", held.Token())
	})
}

func TestSetValueNeedsAnExclusiveLockThatIsHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		unlocked := w.won(c.lock(bg))
		w.unlock(unlocked)
		require.ErrorIs(w, unlocked.SetValue(bg, nil), recipes.ErrNotHeld)
		require.ErrorIs(w, new(recipes.Lock).SetValue(bg, nil), recipes.ErrNotHeld)

		shared := w.won(c.rlock(bg))
		require.ErrorContains(w, shared.SetValue(bg, nil), "dlock: q: set value: only a lock that is held exclusively")
		w.unlock(shared)
		downgraded := w.won(c.lock(bg))
		require.NoError(w, downgraded.Downgrade(bg))
		require.ErrorContains(w, downgraded.SetValue(bg, nil), "only a lock that is held exclusively")
		w.unlock(downgraded)

		lost := w.won(c.lock(bg))
		w.store.Faults().Expire(c.session())
		require.ErrorIs(w, lost.SetValue(bg, nil), recipes.ErrLost)
		require.ErrorIs(w, lost.Unlock(), recipes.ErrLost)
		w.wantValue(c, "", 0)
	})
}

func TestSetValueTellsThatTheNodeWasRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		held := w.won(a.lock(bg))
		w.store.Faults().RemoveNode("q", held.Node())
		next := w.won(b.lock(bg))
		require.NoError(w, next.SetValue(bg, []byte("of the next")))
		require.ErrorIs(w, held.SetValue(bg, []byte("late")), recipes.ErrLost)
		<-held.Lost()
		require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
		w.wantValue(a, "of the next", next.Token())
		w.unlock(next)
	})
}

func TestSetValueSaysWhatIsWrong(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("a").lock(bg))
		before := w.store.Stats()
		require.ErrorContains(w, held.SetValue(bg, []byte(strings.Repeat("x", driver.MaxValue+1))), "65537 bytes")
		var none context.Context
		require.ErrorContains(w, held.SetValue(none, nil), "nil context")
		require.Empty(w, w.spent(before))
		w.unlock(held)
	})
}

func TestSetValueTriesAgainUntilTheStoreAnswers(t *testing.T) {
	for _, committed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			c := w.client("a")
			held := w.won(c.lock(bg))
			w.lose(c.session(), faults.OpSetValue, committed)
			require.NoError(w, held.SetValue(bg, []byte("value")))
			w.wantValue(c, "value", held.Token())
			w.unlock(held)
		})
	}
}

func TestSetValueEndsWithItsContextAndWithTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		held := w.won(c.lock(bg))
		heal := w.store.Faults().CutOff(c.session())
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		err := held.SetValue(ctx, []byte("value"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NotErrorIs(w, err, recipes.ErrLost)
		require.ErrorIs(w, held.SetValue(bg, []byte("value")), recipes.ErrLost)
		require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
		heal()
	})
}
