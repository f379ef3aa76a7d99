package recipes_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func (w *world) wantKept(c *client, value string, token int64) {
	w.Helper()
	got, by, err := c.RWMutex("q").Kept(bg)
	require.NoError(w, err)
	require.Equal(w, value, string(got))
	require.Equal(w, token, by)
}

func TestAKeptValueOutlivesTheLockAndTheClient(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		w.wantKept(b, "", 0)
		held := w.won(a.lock(bg))
		require.NoError(w, held.Keep(bg, []byte("one")))
		require.NoError(w, held.Keep(bg, []byte("two")))
		w.wantKept(b, "two", held.Token())
		w.unlock(held)
		require.NoError(w, a.Close())
		w.wantKept(b, "two", held.Token())
	})
}

func TestKeepNeedsAnExclusiveLockThatIsHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		unlocked := w.won(c.lock(bg))
		w.unlock(unlocked)
		require.ErrorIs(w, unlocked.Keep(bg, nil), recipes.ErrNotHeld)
		require.ErrorIs(w, new(recipes.Lock).Keep(bg, nil), recipes.ErrNotHeld)

		shared := w.won(c.rlock(bg))
		require.ErrorContains(w, shared.Keep(bg, nil), "dlock: q: keep: only a lock that is held exclusively")
		w.unlock(shared)
		downgraded := w.won(c.lock(bg))
		require.NoError(w, downgraded.Downgrade(bg))
		require.ErrorContains(w, downgraded.Keep(bg, nil), "only a lock that is held exclusively")
		w.unlock(downgraded)

		lost := w.won(c.lock(bg))
		w.store.Faults().Expire(c.session())
		require.ErrorIs(w, lost.Keep(bg, nil), recipes.ErrLost)
		require.ErrorIs(w, lost.Unlock(), recipes.ErrLost)
		w.wantKept(c, "", 0)
	})
}

func TestKeepTellsThatTheNodeWasRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		held := w.won(a.lock(bg))
		w.store.Faults().RemoveNode("q", held.Node())
		next := w.won(b.lock(bg))
		require.NoError(w, next.Keep(bg, []byte("of the next")))
		require.ErrorIs(w, held.Keep(bg, []byte("late")), recipes.ErrLost)
		<-held.Lost()
		require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
		w.wantKept(a, "of the next", next.Token())
		w.unlock(next)
	})
}

func TestKeepSaysWhatIsWrong(t *testing.T) {
	inWorld(t, func(w *world) {
		var none context.Context
		c := w.client("a")
		held := w.won(c.lock(bg))
		before := w.store.Stats().Requests[faults.OpKeep]
		require.ErrorContains(w, held.Keep(bg, []byte(strings.Repeat("x", driver.MaxValue+1))), "65537 bytes")
		require.ErrorContains(w, held.Keep(none, nil), "nil context")
		require.Equal(w, before, w.store.Stats().Requests[faults.OpKeep])
		_, _, err := c.RWMutex("q").Kept(none)
		require.ErrorContains(w, err, "nil context")
		_, _, err = c.RWMutex("/").Kept(bg)
		require.ErrorIs(w, err, recipes.ErrBadName)
		w.unlock(held)

		plain := w.clientOf(basic{w.store}, "b")
		held = w.won(plain.lock(bg))
		require.ErrorIs(w, held.Keep(bg, nil), errors.ErrUnsupported)
		_, _, err = plain.RWMutex("q").Kept(bg)
		require.ErrorIs(w, err, errors.ErrUnsupported)
		w.unlock(held)
		require.NoError(w, c.Close())
		_, _, err = c.RWMutex("q").Kept(bg)
		require.ErrorIs(w, err, recipes.ErrClosed)
	})
}

func TestKeepTriesAgainUntilTheStoreAnswers(t *testing.T) {
	for _, committed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			c := w.client("a")
			held := w.won(c.lock(bg))
			w.lose(c.session(), faults.OpKeep, committed)
			require.NoError(w, held.Keep(bg, []byte("value")))
			w.wantKept(c, "value", held.Token())
			w.unlock(held)
		})
	}
}

func TestKeepEndsWithItsContextAndWithTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		held := w.won(c.lock(bg))
		heal := w.store.Faults().CutOff(c.session())
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		err := held.Keep(ctx, []byte("value"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.NotErrorIs(w, err, recipes.ErrLost)
		require.ErrorIs(w, held.Keep(bg, []byte("value")), recipes.ErrLost)
		require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
		heal()
	})
}

// With retention, two holders of the same client may use the same node, one
// after the other. If a Keep of the first holder is still in flight when it
// unlocks, it must not overwrite the value of the second holder.
func TestALateKeepOfACohortDoesNotReplaceAValueOfTheNextHolder(t *testing.T) {
	for _, waits := range []bool{false, true} {
		inWorldOf(t, patient, func(w *world) {
			c := w.client("a", recipes.WithRetention(recipes.Retention{Idle: time.Hour}))
			first := w.won(c.lock(bg))
			var next <-chan result
			if waits {
				next = c.lock(bg)
			}
			w.store.Faults().Delay(c.session(), 10*time.Second)
			kept := make(chan error, 1)
			go func() { kept <- first.Keep(bg, []byte("first")) }()
			time.Sleep(time.Second)
			w.store.Faults().Delay(c.session(), 0)
			w.unlock(first)
			require.ErrorIs(w, <-kept, recipes.ErrNotHeld)
			if !waits {
				next = c.lock(bg)
			}
			second := w.won(next)
			require.NoError(w, second.Keep(bg, []byte("second")))
			time.Sleep(time.Minute)
			w.wantKept(c, "second", second.Token())
			w.unlock(second)
			third := w.won(c.lock(bg))
			require.Equal(w, second.Node(), third.Node(), "a Keep with an answer lets the next holder use the node")
			w.unlock(third)
		})
	}
}
