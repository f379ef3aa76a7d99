package recipes_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

func TestWhoIsAlonePausedBeforeTheGrantIsNotGranted(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		first := c.session()
		paused := false
		waiting := c.lock(bg, recipes.WithTrace(&recipes.Trace{Queued: func(context.Context, recipes.QueuedInfo) {
			if !paused { // the node is there and alone; then the process sleeps
				paused = true
				w.store.Faults().Pause(first, time.Hour)
			}
		}}))
		time.Sleep(soon)
		l := w.won(waiting)
		require.NoError(w, l.Err(), "a new session's")
		assert.NotEqual(w, first, c.session())
		w.unlock(l)
	})
}

func TestACancelJustBeforeTheGrantIsSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		ctx, cancel := context.WithCancel(bg)
		err := w.failed(c.lock(ctx, recipes.WithTrace(&recipes.Trace{Queued: func(context.Context, recipes.QueuedInfo) { cancel() }})))
		require.ErrorIs(w, err, context.Canceled)
		assert.Empty(w, w.names())
	})
}

// A waiter watches its own node from the start, together with its predecessor.
func TestABriefHoldPaysNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		before := w.store.Stats()
		time.Sleep(299 * time.Millisecond)
		synctest.Wait()
		assert.Zero(w, w.store.Stats().Watches)
		assert.Equal(w, before.Requests[faults.OpWatch], w.store.Stats().Requests[faults.OpWatch])
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		assert.Equal(w, 1, w.store.Stats().Watches)
		waiting := w.client("b").lock(bg)
		assert.Equal(w, 2, w.store.Stats().Watches)
		time.Sleep(soon)
		synctest.Wait()
		assert.Equal(w, 2, w.store.Stats().Watches)
		w.unlock(l)
		w.unlock(w.won(waiting))
	})
}

func TestAWaiterThatIsGrantedTheLockStopsItsWatch(t *testing.T) {
	for name, connector := range map[string]func(*world) driver.Connector{
		"armed by Create": func(w *world) driver.Connector { return w.store },
		"armed by Watch":  func(w *world) driver.Connector { return w.placeOnly() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				held := w.won(w.client("a").lock(bg))
				waiting := w.clientOf(connector(w), "b").lock(bg)
				assert.Equal(w, 1, w.store.Stats().Watches)
				w.unlock(held)
				l := w.won(waiting)
				assert.Zero(w, w.store.Stats().Watches)
				w.unlock(l)
			})
		})
	}
}
