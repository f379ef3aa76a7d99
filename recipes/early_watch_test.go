package recipes_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func TestARemovedNodeIsNoticedThoughWatchesCloseEarly(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.clientOf(faults.New(w.store, func(context.Context, faults.Request) faults.Fault {
			return faults.Fault{EndWatchAfter: time.Second}
		}), "a")
		l := w.won(c.lock(bg))
		time.Sleep(time.Hour)
		w.store.Faults().RemoveNode("q", l.Node())
		began := time.Now()
		<-l.Lost()
		assert.Less(w, time.Since(began), 1500*time.Millisecond)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}

// Without pauses, a waiter would send List requests as fast as it can.
func TestAWaiterPausesIfItsWatchesEndEarly(t *testing.T) {
	for _, wait := range []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchQueue()} {
		t.Run(wait.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var lists atomic.Int64
				early := faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
					if r.Op == faults.OpList && r.Stage == faults.StageRequest {
						lists.Add(1)
					}
					if lists.Load() > 10_000 {
						return faults.Fault{} // so that the test fails instead of hanging
					}
					return faults.Fault{EndWatchAfter: time.Microsecond}
				})
				holder := w.client("holder")
				held := w.won(holder.lock(bg))
				waiter := w.clientOf(early, "waiter", recipes.WithWait(wait))
				c := waiter.lock(bg)
				time.Sleep(time.Minute)
				w.waits(c)
				assert.Less(w, lists.Load(), int64(600), "lists in a minute")
				w.unlock(held)
				time.Sleep(soon)
				w.unlock(w.won(c))
			})
		})
	}
}

func TestAWaiterWakesAtOnceInABusyQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.client("holder")
		held := w.won(holder.lock(bg))
		waiter := w.client("waiter", recipes.WithWait(recipes.WatchQueue()))
		c := waiter.lock(bg)
		for range 100 {
			ctx, cancel := context.WithTimeout(bg, time.Millisecond)
			_, err := holder.RWMutex("q").Lock(ctx)
			cancel()
			require.ErrorIs(w, err, recipes.ErrTimeout)
		}
		w.unlock(held)
		w.unlock(w.won(c))
	})
}
