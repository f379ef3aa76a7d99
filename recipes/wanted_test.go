package recipes_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func TestALockIsWantedOnceAnotherContenderWaits(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("waiter first ", first), func(t *testing.T) {
			inWorld(t, func(w *world) {
				l := w.won(w.client("a").lock(bg))
				var waiting <-chan result
				if first {
					waiting = w.client("b").lock(bg)
				} else {
					assert.False(w, isClosed(l.Wanted()))
					waiting = w.client("b").lock(bg)
				}
				assert.True(w, isClosed(l.Wanted()))
				w.unlock(l)
				w.unlock(w.won(waiting))
			})
		})
	}
}

func TestAReadersLockIsWantedByWritersAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		l := w.won(a.lock(bg))
		wanted := l.Wanted()
		require.NoError(w, l.Downgrade(bg))
		beside := w.won(b.rlock(bg))
		assert.False(w, isClosed(wanted))
		writer := b.lock(bg)
		time.Sleep(time.Second) // the client pauses after several changes
		assert.True(w, isClosed(wanted))
		assert.True(w, isClosed(beside.Wanted()))
		w.unlock(l, beside)
		w.unlock(w.won(writer))
	})
}

func TestUnitsAreWantedOnceTheyDoNotSuffice(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		l := w.won(a.acquire(bg, 1, 3))
		beside := w.won(b.acquire(bg, 1, 3))
		assert.False(w, isClosed(l.Wanted()))
		waiting := b.acquire(bg, 2, 3)
		assert.True(w, isClosed(l.Wanted()))
		w.unlock(l)
		w.unlock(w.won(waiting), beside)
	})
}

func TestWhatWantedRequestsOfTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		before := w.store.Stats()
		inner := w.won(c.lock(l.Context(bg)))
		for range 3 {
			assert.Equal(w, l.Wanted(), inner.Wanted())
			synctest.Wait()
		}
		assert.Equal(w, map[faults.Op]int64{faults.OpWatchQueue: 1, faults.OpList: 1}, w.spent(before))
		w.unlock(l)
		assert.Equal(w, 1, w.store.Stats().Watches, "inner still holds")
		w.unlock(inner)
		synctest.Wait()
		assert.Zero(w, w.store.Stats().Watches, "freed at the end of the hold")
		w.unlock(w.won(w.client("b").lock(bg)))
		assert.False(w, isClosed(l.Wanted()))
	})
}

func TestALostLockIsNotWanted(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		wanted := l.Wanted()
		synctest.Wait()
		w.store.Faults().Expire(c.session())
		<-l.Lost()
		other := w.won(w.client("b").lock(bg))
		waiting := w.client("b").lock(bg)
		assert.False(w, isClosed(wanted))
		assert.False(w, isClosed(l.Wanted()))
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		w.unlock(other)
		w.unlock(w.won(waiting))
		assert.Nil(w, new(recipes.Lock).Wanted())
	})
}

func TestAnOutageDelaysWhoWantsTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		waiting := w.client("b").lock(bg)
		w.lose(c.session(), faults.OpWatchQueue, false)
		<-l.Wanted()
		w.unlock(l)
		w.unlock(w.won(waiting))
	})
}
