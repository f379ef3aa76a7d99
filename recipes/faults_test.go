package recipes_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func TestErrorsThatMayPassKeepThePositionInTheQueue(t *testing.T) {
	for _, op := range []faults.Op{faults.OpList, faults.OpWatch} {
		inWorld(t, func(w *world) {
			a, b, c := w.client("a"), w.clientOf(w.placeOnly(), "b"), w.client("c")
			held := w.won(a.lock(bg))
			before := w.store.Stats()
			for range 3 {
				w.store.Faults().LoseReply(b.session(), op)
			}
			first := b.lock(bg)
			second := c.lock(bg)
			time.Sleep(5 * time.Second)
			assert.Greater(w, w.spent(before)[op], int64(3))
			w.unlock(held)
			l := w.won(first)
			assert.Equal(w, "b-W-0000000001", l.Node())
			w.unlock(l)
			w.unlock(w.won(second))
		})
	}
}

func TestACallGivesUpAnUnreachableStoreAfterAMinute(t *testing.T) {
	inWorld(t, func(w *world) {
		c := recipes.NewClient(failing)
		defer c.Close()
		began := time.Now()
		_, err := c.RWMutex("q").Lock(bg)
		require.ErrorIs(w, err, driver.ErrUnavailable)
		assert.ErrorContains(w, err, "dlock: q: gave up after ")
		assert.InDelta(w, 60, time.Since(began).Seconds(), 5)
	})
}

var failing = connectorFunc(func(context.Context) (driver.Session, error) { return nil, driver.ErrUnavailable })

// silent is a store that never answers.
var silent = connectorFunc(func(ctx context.Context) (driver.Session, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("no answer from db7:2181: %w", ctx.Err())
})

func TestATimeoutSaysWhyThereWasNoSession(t *testing.T) {
	forEachCall(t, func(w *world, name string) {
		c := w.connecting(silent)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		began := time.Now()
		err := c.calls("q", nil)[name](ctx)
		assert.ErrorContains(w, err, "no answer from db7:2181")
		assert.LessOrEqual(w, time.Since(began), time.Second+100*time.Millisecond)
		if !slices.Contains(asks, name) {
			assert.ErrorContains(w, err, "before it had a place in the queue")
		}
	})
}

func TestAnAttemptToConnectGoesOnWhileACallerWaitsForIt(t *testing.T) {
	inWorld(t, func(w *world) {
		up := w.store.Faults().Down()
		var dials int
		c := recipes.NewClient(slowly(w.store), recipes.WithTrace(&recipes.Trace{Connected: func(context.Context, recipes.ConnectedInfo) { dials++ }}))
		defer c.Close()
		ctx, cancel := context.WithCancel(bg)
		first := going(func() (*recipes.Lock, error) { return c.RWMutex("q").RLock(ctx) })
		second := going(func() (*recipes.Lock, error) { return c.RWMutex("q").RLock(bg) })
		cancel()
		require.ErrorIs(w, w.failed(first), context.Canceled)
		up()
		time.Sleep(time.Second)
		w.unlock(w.won(second))
		assert.Equal(w, 1, dials)
	})
}

func slowly(store driver.Connector) driver.Connector {
	return connectorFunc(func(ctx context.Context) (driver.Session, error) {
		select {
		case <-time.After(time.Second / 2):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return store.Connect(ctx)
	})
}

func TestACallerThatGivesUpAnAttemptToConnectLeavesNoGoroutine(t *testing.T) {
	inWorld(t, func(w *world) {
		c := recipes.NewClient(faults.New(w.store, func(ctx context.Context, _ faults.Request) faults.Fault {
			<-ctx.Done()
			return faults.Fault{Lose: true}
		}))
		patient := make(chan error, 1)
		go func() { patient <- c.Ping(bg) }()
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 100 {
			ctx, cancel := context.WithTimeout(bg, time.Millisecond)
			_, err := c.RWMutex("q").TryLock(ctx)
			cancel()
			require.ErrorIs(w, err, recipes.ErrTimeout)
		}
		synctest.Wait()
		assert.Less(w, runtime.NumGoroutine(), before+50)
		require.NoError(w, c.Close())
		require.ErrorIs(w, <-patient, recipes.ErrClosed)
	})
}

func TestAttemptsToConnectArePaced(t *testing.T) {
	inWorld(t, func(w *world) {
		var dials int
		c := recipes.NewClient(failing, recipes.WithTrace(&recipes.Trace{Connected: func(context.Context, recipes.ConnectedInfo) { dials++ }}))
		defer c.Close()
		ctx, cancel := context.WithTimeout(bg, 30*time.Second)
		defer cancel()
		var calls []<-chan result
		for range 100 {
			calls = append(calls, going(func() (*recipes.Lock, error) { return c.RWMutex("q").RLock(ctx) }))
		}
		for _, r := range calls {
			require.ErrorIs(w, (<-r).err, recipes.ErrTimeout)
		}
		assert.Less(w, dials, 60, "the dials are 2 s apart in the end, however many calls wait")
	})
}

type countingBackOff struct {
	next   time.Duration
	resets *int
}

func (b countingBackOff) NextBackOff() time.Duration { return b.next }
func (b countingBackOff) Reset()                     { *b.resets++ }

func TestBackOffIsAskedAndReset(t *testing.T) {
	inWorld(t, func(w *world) {
		resets := 0
		c := w.client("a")
		m := c.RWMutex("q", recipes.WithWait(recipes.WatchQueue()), recipes.WithBackOff(func() recipes.BackOff { return countingBackOff{time.Second, &resets} }))
		held := w.won(w.client("h").lock(bg))
		w.store.Faults().LoseRequest(c.session(), faults.OpCreate)
		w.store.Faults().LoseRequest(c.session(), faults.OpCreate)
		waiting := going(func() (*recipes.Lock, error) { return m.Lock(bg) })
		time.Sleep(2*time.Second - 1)
		assert.Len(w, w.names(), 1, "the waiter has no node before two pauses of a second have passed")
		time.Sleep(time.Minute)
		assert.Len(w, w.names(), 2)
		assert.Zero(w, resets)
		w.store.Faults().LoseRequest(c.session(), faults.OpList)
		w.unlock(held)
		time.Sleep(soon)
		w.unlock(w.won(waiting))
		assert.Equal(w, 1, resets, "Reset is called before the first pause that follows a success")
	})
}

func TestBackOffThatStopsGivesUp(t *testing.T) {
	for _, op := range []faults.Op{faults.OpCreate, faults.OpList} {
		inWorld(t, func(w *world) {
			held := w.won(w.client("h").lock(bg))
			c := w.clientOf(w.placeOnly(), "a", recipes.WithBackOff(func() recipes.BackOff { return countingBackOff{-1, new(int)} }))
			w.store.Faults().LoseReply(c.session(), op)
			err := w.failed(c.lock(bg))
			require.ErrorIs(w, err, driver.ErrUnavailable)
			assert.Equal(w, 1, strings.Count(err.Error(), "gave up"))
			time.Sleep(soon)
			assert.Len(w, w.names(), 1)
			w.unlock(held)
		})
	}
}

func TestAPanicInAHookLeavesNothing(t *testing.T) {
	for name, trace := range map[string]*recipes.Trace{
		"queued":  {Queued: func(context.Context, recipes.QueuedInfo) { panic("hook") }},
		"waiting": {Waiting: func(context.Context, recipes.WaitingInfo) { panic("hook") }},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var held *recipes.Lock
				if name == "waiting" {
					held = w.won(w.client("h").rlock(bg))
				}
				c := w.client("a")
				assert.PanicsWithValue(w, "hook", func() {
					_, _ = c.RWMutex("q", recipes.WithTrace(trace)).Lock(bg)
				})
				if held != nil {
					w.unlock(held)
				}
				assert.Empty(w, w.names())
				w.unlock(w.won(c.lock(bg)))
			})
		})
	}
}
