package recipes_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func (c *client) trying(opts ...recipes.Option) map[string]func(context.Context) (*recipes.Lock, error) {
	m := c.RWMutex("q", opts...)
	return map[string]func(context.Context) (*recipes.Lock, error){"TryLock": m.TryLock, "TryRLock": m.TryRLock}
}

func TestTryLockNeverWaitsForAHolderAndWritesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("holder").lock(bg))
		me, began := w.client("me"), time.Now()
		for _, timeout := range []time.Duration{0, time.Hour, time.Millisecond} {
			for name, try := range me.trying(recipes.WithTimeout(timeout)) {
				before := w.store.Stats()
				_, err := try(bg)
				w.Log(name, timeout)
				w.matches(err)
				assert.ErrorIs(w, err, recipes.ErrLocked)
				assert.ErrorContains(w, err, "q: locked by another contender")
				assert.Equal(w, map[faults.Op]int64{faults.OpList: 1}, w.spent(before))
			}
		}
		assert.Zero(w, time.Since(began), "the call has waited")
		w.unlock(held)
		reader := w.won(me.rlock(bg))
		w.unlock(w.granted(me.RWMutex("q").TryRLock(bg)), reader)
	})
}

func TestTimeoutAndDeadlineLimitTheRequestsOfTryLock(t *testing.T) {
	inWorld(t, func(w *world) {
		me := w.client("me")
		for name, try := range me.trying(recipes.WithTimeout(3 * time.Second)) {
			for _, deadline := range []time.Duration{2 * time.Second, time.Hour} {
				heal := w.store.Faults().CutOff(me.session())
				ctx, cancel := context.WithTimeout(bg, deadline)
				began := time.Now()
				_, err := try(ctx)
				cancel()
				w.matches(err, recipes.ErrTimeout, context.DeadlineExceeded, driver.ErrUnavailable)
				assert.Equal(w, min(deadline, 3*time.Second), time.Since(began), name)
				heal()
				time.Sleep(soon)
				assert.Empty(w, w.names(), "%s has left a node", name)
			}
			l := w.granted(try(bg))
			time.Sleep(time.Minute)
			w.unlock(l) // the limit does not apply to the hold
		}
	})
}

func TestTryLockWithoutATimeoutWaitsForTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		me := w.client("me")
		for name, try := range me.trying() {
			time.AfterFunc(5*time.Second, w.store.Faults().CutOff(me.session()))
			began := time.Now()
			w.unlock(w.granted(try(bg)))
			assert.Equal(w, 5*time.Second, time.Since(began), name)
		}
	})
}

func TestTryLockDoesNotWaitForAContenderThatJoinsAfterItsList(t *testing.T) {
	inWorld(t, func(w *world) {
		other := w.client("a")
		var held *recipes.Lock
		c := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) (f faults.Fault) {
			if r.Op == faults.OpCreate && r.Stage == faults.StageRequest {
				held, _ = other.RWMutex("q").Lock(bg)
			}
			return f
		}), "b")
		err := w.failed(going(func() (*recipes.Lock, error) { return c.RWMutex("q").TryLock(bg) }))
		require.ErrorIs(w, err, recipes.ErrLocked)
		w.unlock(held)
		assert.Empty(w, w.names())
	})
}

// Both calls find the queue empty, and create their nodes before either checks
// its position.
func TestOneOfTwoTryLocksThatMeetTakesTheLock(t *testing.T) {
	for name, drop := range map[string]bool{"with the nodes ahead": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				met := map[faults.Stage]*sync.WaitGroup{faults.StageRequest: {}, faults.StageReply: {}}
				for _, m := range met {
					m.Add(2)
				}
				store := faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
					switch r.Op {
					case faults.OpCreate:
						met[r.Stage].Done()
						met[r.Stage].Wait()
						return faults.Fault{DropAhead: drop && r.Stage == faults.StageReply}
					case faults.OpDelete:
						return faults.Fault{Delay: soon / 2} // by then, both calls have checked their positions
					}
					return faults.Fault{}
				})
				a, b := w.clientOf(store, "a").RWMutex("q"), w.clientOf(store, "b").RWMutex("q")
				one := going(func() (*recipes.Lock, error) { return a.TryLock(bg) })
				two := going(func() (*recipes.Lock, error) { return b.TryLock(bg) })
				winner, loser := <-one, <-two
				if winner.err != nil {
					winner, loser = loser, winner
				}
				require.NoError(w, winner.err)
				assert.ErrorIs(w, loser.err, recipes.ErrLocked)
				w.unlock(winner.lock)
			})
		})
	}
}
