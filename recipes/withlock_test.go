package recipes_test

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

type withLock = func(context.Context, func(context.Context, *recipes.Lock) error) error

func (c *client) with(opts ...recipes.Option) map[string]withLock {
	m := c.RWMutex("q", opts...)
	return map[string]withLock{"WithLock": m.WithLock, "WithRLock": m.WithRLock}
}

func TestUnlockWaitsTwoSecondsAndTheReaperDoesTheRest(t *testing.T) {
	inWorld(t, func(w *world) {
		var reaped []recipes.ReapedInfo
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Reaped: func(_ context.Context, i recipes.ReapedInfo) { reaped = append(reaped, i) },
		}))
		l := w.won(c.lock(bg))
		next := w.client("b").lock(bg)
		heal := w.store.Faults().CutOff(c.session())
		began := time.Now()
		err := l.Unlock()
		assert.Equal(w, 2*time.Second, time.Since(began))
		w.matches(err, recipes.ErrUnlock, driver.ErrUnavailable)
		assert.EqualError(w, err, "dlock: q: unlocked, but the store has not confirmed it: "+
			"store unavailable: node a-W-0000000000 is removed when the store answers: no answer within 2s")
		w.matches(l.Err(), recipes.ErrNotHeld)
		w.matches(l.Unlock(), recipes.ErrNotHeld)
		w.waits(next)
		heal()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(w, reaped, 1)
		require.NoError(w, reaped[0].Err)
		w.unlock(w.won(next))
		assert.False(w, isClosed(l.Lost()))
	})
}

func TestWithLockTellsThatTheWorkWasDoneThoughTheNodeStays(t *testing.T) {
	mine := errors.New("mine")
	for _, call := range []string{"WithLock", "WithRLock"} {
		for _, result := range []error{nil, mine, context.DeadlineExceeded} {
			inWorld(t, func(w *world) {
				c := w.client("a")
				var heal func()
				err := c.with()[call](bg, func(context.Context, *recipes.Lock) error {
					heal = w.store.Faults().CutOff(c.session())
					return result
				})
				want := []error{recipes.ErrUnlock, driver.ErrUnavailable}
				if result != nil {
					want = append(want, result)
				}
				w.matches(err, want...)
				heal()
				time.Sleep(soon)
			})
		}
	}
}

func TestAnUnlockThatDowngradesAndIsNotConfirmedIsNoTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		inner := w.won(c.rlock(l.Context(bg)))
		heal := w.store.Faults().CutOff(c.session())
		w.matches(l.Unlock(), recipes.ErrUnlock, driver.ErrUnavailable)
		heal()
		time.Sleep(soon)
		w.unlock(inner)
	})
}

func TestEveryFailureToRemoveTheNodeIsErrUnlock(t *testing.T) {
	inWorld(t, func(w *world) {
		refused := w.granted(w.clientOf(w.undeleting(fs.ErrPermission, new(atomic.Int64)), "a").RWMutex("refused/q").Lock(bg))
		w.matches(refused.Unlock(), recipes.ErrUnlock, fs.ErrPermission)

		c := w.client("b")
		expired := w.won(c.lock(bg))
		heal := w.store.Faults().CutOff(c.session())
		time.Sleep(6 * time.Second) // the lease expires after 7.5 s, during Unlock
		w.matches(expired.Unlock(), recipes.ErrUnlock, driver.ErrUnavailable)
		heal()
		time.Sleep(time.Minute)

		c = w.client("c")
		closed := w.won(c.lock(bg))
		w.store.Faults().Delay(c.session(), time.Second)
		time.AfterFunc(time.Millisecond, func() { _ = c.Close() })
		w.matches(closed.Unlock(), recipes.ErrUnlock, recipes.ErrClosed)
	})
}

func TestWithLockReturnsTheErrorOfTheFunctionAsItIs(t *testing.T) {
	inWorld(t, func(w *world) {
		mine := errors.New("mine")
		for _, call := range w.client("a").with() {
			require.Same(w, mine, call(bg, func(context.Context, *recipes.Lock) error { return mine }))
		}
	})
}

// The function may return an error that is about another lock.
func TestAnInnerLockDoesNotSpeakForTheOuterOne(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer, inner := c.RWMutex("outer"), c.RWMutex("q", recipes.WithTimeout(time.Second))
		nothing := func(context.Context, *recipes.Lock) error { return nil }
		held := w.won(w.client("h").lock(bg))
		err := outer.WithLock(bg, func(ctx context.Context, _ *recipes.Lock) error { return inner.WithLock(ctx, nothing) })
		w.matches(err, recipes.ErrTimeout, context.DeadlineExceeded)
		assert.ErrorContains(w, err, "dlock: q: timed out")
		w.unlock(held)

		err = outer.WithLock(bg, func(ctx context.Context, _ *recipes.Lock) error {
			return inner.WithLock(ctx, func(context.Context, *recipes.Lock) error {
				time.AfterFunc(2500*time.Millisecond, w.store.Faults().CutOff(c.session()))
				return nil
			})
		})
		w.matches(err, driver.ErrUnavailable)
		time.Sleep(soon)
	})
}

func TestWithLockJoinsTheLossToTheErrorOfTheFunction(t *testing.T) {
	for how, lose := range losses {
		want := []error{recipes.ErrLost}
		if how == "its client is closed" {
			want = append(want, recipes.ErrClosed)
		}
		for _, result := range []error{nil, multierror.Append(nil, errors.New("mine"))} {
			for _, call := range []string{"WithLock", "WithRLock"} {
				inWorld(t, func(w *world) {
					c := w.client("a")
					err := c.with()[call](bg, func(ctx context.Context, l *recipes.Lock) error {
						lose(w, c, "q")
						if how != "its node is removed" { // in that case, only Unlock notices the loss
							<-ctx.Done()
							assert.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)
						}
						return result
					})
					w.Log(how, call, err)
					w.matches(err, want...)
					if result != nil {
						assert.ErrorIs(w, err, result)
					}
				})
			}
		}
	}
}

func TestWithLockTellsThatTheFunctionDidNotRun(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		never := func(context.Context, *recipes.Lock) error { panic("let in") }
		w.matches(c.with()["WithLock"](bg, nil), recipes.ErrNotRun)
		shared := w.won(c.rlock(bg))
		err := c.with()["WithLock"](shared.Context(bg), never)
		w.matches(err, recipes.ErrNotRun)
		require.ErrorIs(w, err, recipes.ErrUpgrade)
		err = c.with(recipes.WithTimeout(time.Second))["WithLock"](bg, never)
		w.matches(err, recipes.ErrNotRun, recipes.ErrTimeout, context.DeadlineExceeded)
		w.unlock(shared)
	})
}
