package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func TestAFullQueueRefusesAContender(t *testing.T) {
	for _, driver := range []string{"tells what is ahead", "returns the place only"} {
		t.Run(driver, func(t *testing.T) {
			inWorld(t, func(w *world) {
				connector := w.placeOnly()
				if driver == "tells what is ahead" {
					connector = w.store
				}
				full := recipes.WithMaxQueue(2)
				holder := w.won(w.clientOf(connector, "h").lock(bg, full))
				waiting := w.clientOf(connector, "w").lock(bg, full)
				w.waits(waiting)

				c := w.clientOf(connector, "c")
				for _, lock := range []func(context.Context, ...recipes.Option) <-chan result{c.lock, c.rlock} {
					err := w.failed(lock(bg, full))
					w.matches(err)
					require.ErrorIs(w, err, recipes.ErrQueueFull)
					require.EqualError(w, err, "dlock: q: queue full: 2 ahead, and the limit of WithMaxQueue is 2")
				}
				_, err := c.RWMutex("q", full).TryLock(bg)
				require.ErrorIs(w, err, recipes.ErrLocked)
				err = c.with(full)["WithLock"](bg, nil)
				require.ErrorIs(w, err, recipes.ErrNotRun)
				time.Sleep(soon)
				assert.Len(w, w.names(), 2)

				patient := c.lock(bg, full, recipes.WithMaxQueue(0))
				w.waits(patient)
				w.unlock(holder)
				w.unlock(w.won(waiting))
				w.unlock(w.won(patient))
			})
		})
	}
}

func TestAFullQueueOfReadersAdmitsAReader(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithMaxQueue(1))
		first, second := w.won(c.rlock(bg)), w.won(c.rlock(bg))
		require.ErrorIs(w, w.failed(c.lock(bg)), recipes.ErrQueueFull)
		third := w.won(c.rlock(bg))
		w.unlock(first, second, third)
	})
}

func TestAContenderThatRejoinsIsNotRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.won(w.client("h").lock(bg))
		c := w.client("c", recipes.WithMaxQueue(2))
		waiting := c.lock(bg)
		w.waits(waiting)
		overtakes := w.client("o").lock(bg)
		w.store.Faults().Expire(c.session())
		time.Sleep(soon)
		w.waits(waiting)
		w.unlock(holder)
		w.unlock(w.won(overtakes))
		w.unlock(w.won(waiting))
	})
}

func TestTheLimitOfAQueueCostsNoRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		limit := recipes.WithMaxQueue(1)
		a, b, c := w.client("a"), w.client("b"), w.clientOf(w.placeOnly(), "c")
		before := w.store.Stats()
		l := w.won(a.lock(bg, limit))
		require.ErrorIs(w, w.failed(b.lock(bg, limit)), recipes.ErrQueueFull)
		assert.Equal(w, map[faults.Op]int64{faults.OpCreate: 2, faults.OpDelete: 1}, w.spent(before))
		before = w.store.Stats()
		waiting := c.lock(bg, recipes.WithMaxQueue(2))
		assert.Equal(w, map[faults.Op]int64{faults.OpCreate: 1, faults.OpList: 1, faults.OpWatch: 1}, w.spent(before), "one list for limit and wait")
		w.unlock(l)
		w.unlock(w.won(waiting))
	})
}
