package recipes_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

type everySecond struct{}

func (everySecond) NextBackOff() time.Duration { return time.Second }
func (everySecond) Reset()                     {}

func TestADialInTheBackOffEndsWhenItsCallerGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		dials := 0
		c := w.connecting(connectorFunc(func(context.Context) (driver.Session, error) {
			dials++
			return nil, driver.ErrUnavailable
		}), recipes.WithBackOff(func() recipes.BackOff { return everySecond{} }))
		ctx, cancel := context.WithTimeout(bg, 500*time.Millisecond)
		defer cancel()
		require.Error(w, c.Ping(ctx))
		require.Error(w, c.Ping(ctx))
		time.Sleep(time.Minute)
		assert.Equal(w, 1, dials, "the client dials although no call waits for a second dial")
	})
}

// A later call can find a session only if the attempt outlives its first
// caller.
func TestCallsShorterThanAConnectGetASession(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.connecting(slowly(w.store), recipes.WithTimeout(400*time.Millisecond))
		for range 2 {
			served := 0
			for range 20 {
				l, err := c.RWMutex("q").Lock(bg)
				if err != nil {
					require.ErrorIs(w, err, recipes.ErrTimeout)
					continue
				}
				served++
				w.unlock(l)
			}
			require.Equal(w, 18, served, "the first call gives up, and the second before the client has connected anew")
			w.store.Faults().Expire(c.session())
		}
	})
}

func TestASessionThatNoCallWaitsForEndsWithClose(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.connecting(slowly(w.store))
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		require.Error(w, c.Ping(ctx))
		time.Sleep(time.Minute)
		require.Equal(w, 1, w.store.Stats().Sessions)
		require.NoError(w, c.Close())
		require.Zero(w, w.store.Stats().Sessions)
	})
}

func TestAnAttemptToConnectThatNoCallWaitsForEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		var ended []time.Duration
		began := time.Now()
		c := w.connecting(silent, recipes.WithTrace(&recipes.Trace{Connected: func(ctx context.Context, _ recipes.ConnectedInfo) {
			assert.NoError(w, ctx.Err())
			ended = append(ended, time.Since(began))
		}}))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		require.Error(w, c.Ping(ctx))
		time.Sleep(time.Hour)
		require.NoError(w, c.Close())
		assert.Equal(w, []time.Duration{time.Second, 31 * time.Second}, ended)
	})
}

// A TryLock must not fail because Ping has cancelled a Connect that is still
// returning.
func TestNoCallFailsBecauseAnotherGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		dials := 0
		c := w.connecting(connectorFunc(func(ctx context.Context) (driver.Session, error) {
			if dials++; dials > 1 {
				return w.store.Connect(ctx)
			}
			<-ctx.Done()
			time.Sleep(10 * time.Millisecond)
			return nil, driver.ErrUnavailable
		}))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- c.Ping(ctx) }()
		time.Sleep(time.Second + time.Millisecond) // after ctx, but before Connect returns
		l, err := c.RWMutex("q").TryLock(bg)
		require.NoError(w, err)
		w.unlock(l)
		require.Error(w, <-first)
	})
}
