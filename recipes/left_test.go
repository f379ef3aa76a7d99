package recipes_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

// slowOnce delays the first reply to op by ten seconds, and counts requests.
func (w *world) slowOnce(op faults.Op, sent *atomic.Int64) driver.Connector {
	return faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
		if r.Op == op && r.Stage == faults.StageRequest {
			sent.Add(1)
		}
		if r.Op == op && r.Stage == faults.StageReply && sent.Load() == 1 {
			return faults.Fault{Delay: 10 * time.Second}
		}
		return faults.Fault{}
	})
}

func TestACallWithADeadlineInterruptsNoCreate(t *testing.T) {
	inWorld(t, func(w *world) {
		var sent atomic.Int64
		me := w.clientOf(w.slowOnce(faults.OpCreate, &sent), "me")
		began := time.Now()
		err := w.failedSoon(me.lock(bg, recipes.WithTimeout(time.Second)))
		require.ErrorIs(w, err, recipes.ErrTimeout)
		require.ErrorIs(w, err, driver.ErrUnavailable)
		require.Equal(w, time.Second, time.Since(began))

		before := w.store.Stats()
		next := me.lock(bg)
		require.ErrorIs(w, w.failedSoon(me.lock(bg, recipes.WithTimeout(time.Second))), recipes.ErrTimeout)
		require.Empty(w, w.spent(before), "calls send nothing until the Create is answered")
		w.waits(next)
		time.Sleep(8 * time.Second)
		l := w.won(next)
		assert.Equal(w, 10*time.Second, time.Since(began))
		assert.Equal(w, map[faults.Op]int64{faults.OpDelete: 1, faults.OpCreate: 1}, w.spent(before))
		assert.Len(w, w.names(), 1)
		w.unlock(l)
	})
}

// Only after a prompt answer does the next Create run on its caller's
// goroutine.
func TestAPromptStoreThatFallsSilentInterruptsOneCreate(t *testing.T) {
	inWorld(t, func(w *world) {
		var silent atomic.Bool
		me := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			if r.Op != faults.OpCreate || r.Stage != faults.StageReply || !silent.Load() {
				return faults.Fault{}
			}
			return faults.Fault{Delay: 10 * time.Second}
		}), "me")
		try := func() time.Duration {
			began := time.Now()
			err := w.failedSoon(me.lock(bg, recipes.WithTimeout(time.Second)))
			require.ErrorIs(w, err, recipes.ErrTimeout)
			require.ErrorIs(w, err, driver.ErrUnavailable)
			return time.Since(began)
		}
		w.unlock(w.won(me.lock(bg, recipes.WithTimeout(time.Second))))
		silent.Store(true)
		assert.Equal(w, time.Second+50*time.Millisecond, try(), "the call lingers before it interrupts its Create")
		for range 2 {
			assert.Equal(w, time.Second, try())
		}
		silent.Store(false)
		next := me.lock(bg)
		w.waits(next)
		time.Sleep(10 * time.Second)
		w.unlock(w.won(next))
	})
}

func TestACallThatFailsInterruptsNoDelete(t *testing.T) {
	inWorld(t, func(w *world) {
		var sent atomic.Int64
		held, me := w.won(w.client("other").lock(bg)), w.clientOf(w.slowOnce(faults.OpDelete, &sent), "me")
		began := time.Now()
		require.ErrorIs(w, w.failedSoon(me.lock(bg, recipes.WithTimeout(time.Second))), recipes.ErrTimeout)
		require.Equal(w, time.Second+50*time.Millisecond, time.Since(began))
		w.unlock(held)
		next := me.lock(bg)
		w.waits(next)
		time.Sleep(10 * time.Second)
		assert.EqualValues(w, 1, sent.Load())
		w.unlock(w.won(next))
	})
}

func TestTheBackOffAlsoLimitsTheWaitForEarlierCalls(t *testing.T) {
	inWorld(t, func(w *world) {
		var refusing atomic.Bool
		me := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			return faults.Fault{Lose: r.Op == faults.OpDelete && r.Stage == faults.StageRequest && refusing.Load()}
		}), "me", recipes.WithBackOff(func() recipes.BackOff {
			return backoff.NewConstantBackOff(time.Second)
		}))
		l := w.won(me.lock(bg))
		refusing.Store(true)
		require.ErrorIs(w, l.Unlock(), driver.ErrUnavailable)
		before := w.store.Stats()
		err := w.failedSoon(me.lock(bg, recipes.WithBackOff(func() recipes.BackOff { return new(thrice) })))
		require.ErrorIs(w, err, driver.ErrUnavailable)
		require.ErrorContains(w, err, "gave up after")
		require.NotContains(w, w.spent(before), faults.OpCreate)
		refusing.Store(false)
		next := me.lock(bg)
		time.Sleep(soon)
		w.unlock(w.won(next))
	})
}

type thrice int

func (n *thrice) NextBackOff() time.Duration {
	if *n++; *n > 3 {
		return backoff.Stop
	}
	return time.Millisecond
}

func (*thrice) Reset() {}

func (w *world) failedSoon(c <-chan result) error {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		require.Error(w, r.err)
		return r.err
	case <-time.After(time.Minute):
		require.FailNow(w, "the call has not returned")
		return nil
	}
}
