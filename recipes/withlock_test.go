package recipes_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

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

// matches requires that err matches the errors in want, and none of the other
// errors that locks return.
func (w *world) matches(err error, want ...error) {
	w.Helper()
	for _, target := range []error{
		recipes.ErrNotRun, recipes.ErrUnlock, recipes.ErrLost, recipes.ErrNotHeld, recipes.ErrTimeout, recipes.ErrClosed,
		driver.ErrUnavailable, context.DeadlineExceeded, context.Canceled, fs.ErrPermission,
	} {
		if !slices.Contains(want, target) {
			assert.NotErrorIs(w, err, target)
		}
	}
	for _, target := range want {
		assert.ErrorIs(w, err, target)
	}
}

func TestANodeThatIsNotRemovedInTimeIsNoTimeout(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		heal := w.store.Faults().CutOff(c.session())
		began := time.Now()
		err := l.Unlock()
		assert.Equal(w, 2*time.Second, time.Since(began))
		w.matches(err, recipes.ErrUnlock, driver.ErrUnavailable)
		assert.EqualError(w, err, "dlock: q: unlocked, but the store has not confirmed it: "+
			"store unavailable: node a-W-0000000000 is removed when the store answers: no answer within 2s")
		w.matches(l.Unlock(), recipes.ErrNotHeld)
		heal()
		time.Sleep(soon)
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
		refused, err := w.clientOf(&undeleting{Connector: w.store, err: fs.ErrPermission}, "a").RWMutex("refused/q").Lock(bg)
		require.NoError(w, err)
		w.matches(refused.Unlock(), recipes.ErrUnlock, fs.ErrPermission)

		c := w.client("b")
		expired := w.won(c.lock(bg))
		heal := w.store.Faults().CutOff(c.session())
		time.Sleep(6 * time.Second) // the lease runs out after 7.5 s, while Unlock waits
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

func TestWithLockTellsThatTheFunctionDidNotRun(t *testing.T) {
	never := func(context.Context, *recipes.Lock) error { panic("let in") }
	for _, call := range []string{"WithLock", "WithRLock"} {
		inWorld(t, func(w *world) {
			c, closed, lost := w.client("a"), w.client("b"), w.client("c")
			require.NoError(w, closed.Close())
			held := w.won(w.client("h").lock(bg))
			short, cancel := context.WithTimeout(bg, 2*time.Second)
			defer cancel()
			gone, cancel := context.WithCancel(bg)
			cancel()

			failures := map[string]struct {
				err  error
				want []error
			}{
				"WithTimeout":  {c.with(recipes.WithTimeout(time.Second))[call](bg, never), []error{recipes.ErrTimeout, context.DeadlineExceeded}},
				"deadline":     {c.with()[call](short, never), []error{recipes.ErrTimeout, context.DeadlineExceeded}},
				"cancelled":    {c.with()[call](gone, never), []error{context.Canceled}},
				"closed":       {closed.with()[call](bg, never), []error{recipes.ErrClosed}},
				"bad name":     {c.RWMutex("").WithLock(bg, never), []error{recipes.ErrBadName}},
				"nil context":  {c.with()[call](nil, never), nil},
				"nil function": {c.with()[call](bg, nil), nil},
			}
			w.unlock(held)
			shared := w.won(lost.rlock(bg))
			inside := shared.Context(bg)
			failures["upgrade"] = struct {
				err  error
				want []error
			}{lost.RWMutex("q").WithLock(inside, never), []error{recipes.ErrUpgrade}}
			w.store.Faults().RemoveNode("q", shared.Node())
			<-shared.Lost()
			failures["the lock of the context is lost"] = struct {
				err  error
				want []error
			}{lost.with()[call](inside, never), []error{recipes.ErrLost}}
			_ = shared.Unlock()

			for name, f := range failures {
				w.Log(name)
				require.Error(w, f.err)
				w.matches(f.err, append(f.want, recipes.ErrNotRun)...)
			}
		})
	}
}

func TestWithLockReturnsTheErrorOfTheFunctionAsItIs(t *testing.T) {
	inWorld(t, func(w *world) {
		mine := errors.New("mine")
		for _, call := range w.client("a").with() {
			require.Same(w, mine, call(bg, func(context.Context, *recipes.Lock) error { return mine }))
		}
	})
}

// The function passed to WithLock may return an error of another lock, which
// must not be mistaken for an error of WithLock's own lock.
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

func TestALossInWithLockIsErrLostAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		for name, call := range w.client("a").with() {
			err := call(bg, func(ctx context.Context, l *recipes.Lock) error {
				w.store.Faults().RemoveQueue("q")
				return nil
			})
			w.Log(name)
			w.matches(err, recipes.ErrLost)
		}
	})
}
