package recipes_test

import (
	"context"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

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

func TestAFreeLockTakesTwoRequests(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		before := w.store.Stats()
		w.unlock(w.won(c.lock(bg)))
		w.unlock(w.won(c.rlock(bg)))
		assert.Equal(w, map[faults.Op]int64{faults.OpCreate: 2, faults.OpDelete: 2}, w.spent(before))
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

func TestErrorsOfTheStoreThatWillNotPassAreNotRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		refusing := faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			return faults.Fault{Lose: r.Op == faults.OpCreate, Err: fs.ErrPermission}
		})
		c := w.clientOf(refusing, "a", recipes.WithTrace(&recipes.Trace{
			Retrying: func(context.Context, recipes.RetryingInfo) { w.Error("the call is retried") },
		}))
		err := w.failed(c.lock(bg))
		w.matches(err, fs.ErrPermission)
		assert.ErrorContains(w, err, "dlock: q: ")
	})
}
