package recipes_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
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

func TestTryLockDoesNotWaitForAHolderHoweverLongItsTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("holder").lock(bg))
		began := time.Now()
		for _, timeout := range []time.Duration{time.Hour, time.Millisecond} {
			for name, try := range w.client("me").trying(recipes.WithTimeout(timeout)) {
				l, err := try(bg)
				require.Nil(w, l)
				assert.ErrorIs(w, err, recipes.ErrLocked, "%s with a timeout of %v", name, timeout)
				assert.NotErrorIs(w, err, recipes.ErrTimeout)
			}
		}
		assert.Zero(w, time.Since(began), "the call has waited")
		w.unlock(held)
	})
}

func TestWithTimeoutLimitsTheRequestsOfTryLock(t *testing.T) {
	inWorld(t, func(w *world) {
		me := w.client("me")
		for name, try := range me.trying(recipes.WithTimeout(3 * time.Second)) {
			heal := w.store.Faults().CutOff(me.session())
			began := time.Now()
			_, err := try(bg)
			assert.ErrorIs(w, err, recipes.ErrTimeout, name)
			assert.ErrorIs(w, err, context.DeadlineExceeded, name)
			assert.Equal(w, 3*time.Second, time.Since(began), name)
			heal()
			synctest.Wait()
			assert.Empty(w, w.names(), "%s has left a node", name)
		}
	})
}

func TestTheEarlierOfTimeoutAndDeadlineLimitsTryLock(t *testing.T) {
	inWorld(t, func(w *world) {
		me := w.client("me")
		heal := w.store.Faults().CutOff(me.session())
		defer heal()
		for name, try := range me.trying(recipes.WithTimeout(3 * time.Second)) {
			ctx, cancel := context.WithTimeout(bg, 2*time.Second)
			began := time.Now()
			_, err := try(ctx)
			assert.ErrorIs(w, err, recipes.ErrTimeout, name)
			assert.Equal(w, 2*time.Second, time.Since(began), name)
			cancel()
		}
	})
}

func TestTryLockWithoutATimeoutWaitsForTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		me := w.client("me")
		for name, try := range me.trying() {
			heal := w.store.Faults().CutOff(me.session())
			time.AfterFunc(5*time.Second, heal)
			began := time.Now()
			l, err := try(bg)
			require.NoError(w, err, name)
			assert.Equal(w, 5*time.Second, time.Since(began), name)
			w.unlock(l)
		}
	})
}

func TestATimeoutDoesNotEndAHoldOfTryLock(t *testing.T) {
	inWorld(t, func(w *world) {
		for name, try := range w.client("me").trying(recipes.WithTimeout(time.Second)) {
			l, err := try(bg)
			require.NoError(w, err, name)
			time.Sleep(time.Minute)
			assert.NoError(w, l.Err(), name)
			w.unlock(l)
		}
	})
}

// beforeCreate calls f ahead of each Create.
type beforeCreate struct {
	driver.Connector
	f func()
}

func (b beforeCreate) Connect(ctx context.Context) (driver.Session, error) {
	s, err := b.Connector.Connect(ctx)
	return beforeCreateSession{s, b.f}, err
}

type beforeCreateSession struct {
	driver.Session
	f func()
}

func (s beforeCreateSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	s.f()
	return s.Session.Create(ctx, queue, n)
}

func TestTryLockDoesNotWaitForAContenderThatJoinsAfterItsList(t *testing.T) {
	inWorld(t, func(w *world) {
		other := w.client("a")
		var held *recipes.Lock
		c := w.clientOf(beforeCreate{w.store, func() {
			l, err := other.RWMutex("q").Lock(bg)
			assert.NoError(w, err)
			held = l
		}}, "b")
		err := w.failed(going(func() (*recipes.Lock, error) { return c.RWMutex("q").TryLock(bg) }))
		require.ErrorIs(w, err, recipes.ErrLocked)
		w.unlock(held)
		assert.Empty(w, w.names())
	})
}

// One of two concurrent calls of TryLock must succeed, even if both find the
// queue empty and both create their nodes before either checks its position.
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
						return faults.Fault{Delay: soon / 2} // both have checked by then
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

func TestTheNodeOfATryLockThatFailedKeepsTheNextOneOut(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, next := w.client("a"), w.client("c")
		var held *recipes.Lock
		slow := faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			if r.Op == faults.OpDelete && r.Stage == faults.StageRequest {
				return faults.Fault{Delay: soon}
			}
			return faults.Fault{}
		})
		late := w.clientOf(beforeCreate{slow, func() {
			l, err := holder.RWMutex("q").Lock(bg)
			assert.NoError(w, err)
			held = l
		}}, "b")
		_, err := late.RWMutex("q").TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		w.unlock(held)
		_, err = next.RWMutex("q").TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked, "the node of b is still in the queue")
		time.Sleep(soon)
		w.unlock(w.won(going(func() (*recipes.Lock, error) { return next.RWMutex("q").TryLock(bg) })))
	})
}
