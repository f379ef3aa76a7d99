package recipes_test

import (
	"context"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func TestACancelJustBeforeTheGrantIsSeen(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		ctx, cancel := context.WithCancel(bg)
		err := w.failed(c.lock(ctx, recipes.WithTrace(&recipes.Trace{Queued: func(context.Context, recipes.QueuedInfo) { cancel() }})))
		require.ErrorIs(w, err, context.Canceled)
		assert.Empty(w, w.names())
	})
}

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

func TestAWaiterThatIsGrantedTheLockKeepsTheWatchOfItsNode(t *testing.T) {
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
				requests := w.store.Stats().Requests[faults.OpWatch]
				time.Sleep(soon)
				synctest.Wait()
				assert.Equal(w, 1, w.store.Stats().Watches)
				assert.Equal(w, requests, w.store.Stats().Requests[faults.OpWatch])
				w.store.Faults().RemoveNode("q", l.Node())
				assert.True(w, isClosed(l.Lost()))
				require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
			})
		})
	}
}

func TestAWaiterStopsItsWatchOfTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("a").lock(bg))
		queue := recipes.WithWait(recipes.WatchQueue())
		ctx, cancel := context.WithCancel(bg)
		waiting, leaving := w.client("b").lock(bg, queue), w.client("c").lock(ctx, queue)
		assert.Equal(w, 2, w.store.Stats().Watches)
		cancel()
		require.ErrorIs(w, w.failed(leaving), context.Canceled)
		assert.Equal(w, 1, w.store.Stats().Watches)
		w.unlock(held)
		l := w.won(waiting)
		assert.Zero(w, w.store.Stats().Watches)
		w.unlock(l)
	})
}

// To keep the watch alive, the test's store refuses to delete the node.
func TestUnlockStopsTheWatchOfTheNode(t *testing.T) {
	for name, held := range map[string]time.Duration{"kept by a waiter": 0, "in the background": soon} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first := w.granted(w.client("a").RWMutex("refused/q").Lock(bg))
				m := w.clientOf(w.undeleting(fs.ErrPermission, new(atomic.Int64)), "b").RWMutex("refused/q")
				waiting := going(func() (*recipes.Lock, error) { return m.Lock(bg) })
				w.unlock(first)
				l := w.won(waiting)
				time.Sleep(held)
				require.Equal(w, 1, w.store.Stats().Watches)
				require.ErrorIs(w, l.Unlock(), fs.ErrPermission)
				synctest.Wait()
				assert.Zero(w, w.store.Stats().Watches)
			})
		})
	}
}
