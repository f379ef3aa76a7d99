package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

var limits = map[string]func(c *client, opts ...recipes.Option) error{
	"WithTimeout": func(c *client, opts ...recipes.Option) error {
		_, err := c.RWMutex("q", append(opts, recipes.WithTimeout(time.Second))...).Lock(bg)
		return err
	},
	"deadline": func(c *client, opts ...recipes.Option) error {
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err := c.RWMutex("q", opts...).Lock(ctx)
		return err
	},
}

func TestATimeoutTellsAnOutageFromContention(t *testing.T) {
	for name, lock := range limits {
		inWorld(t, func(w *world) {
			timeout := []error{recipes.ErrTimeout, context.DeadlineExceeded}
			outage := append(timeout, driver.ErrUnavailable)

			c := w.client("a")
			held := w.won(w.client("h").lock(bg))
			w.Log(name, "contention")
			w.matches(lock(c), timeout...)
			time.Sleep(soon)

			w.Log(name, "no answer to the first request")
			heal := w.store.Faults().CutOff(c.session())
			w.matches(lock(c), outage...)
			heal()
			time.Sleep(soon)

			w.Log(name, "no session")
			w.store.Faults().Expire(c.session())
			up := w.store.Faults().Down()
			w.matches(lock(c), outage...)
			up()
			time.Sleep(soon)
			_ = held.Unlock()
		})
	}
}

func TestATimeoutDuringALaterRequestTellsOfTheOutage(t *testing.T) {
	for name, lock := range limits {
		inWorld(t, func(w *world) {
			c := w.client("a")
			held := w.won(w.client("h").lock(bg))
			poll := recipes.WithWait(recipes.Poll(100 * time.Millisecond))
			cut := make(chan func(), 1)
			time.AfterFunc(500*time.Millisecond, func() { cut <- w.store.Faults().CutOff(c.session()) })
			w.Log(name)
			w.matches(lock(c, poll), recipes.ErrTimeout, context.DeadlineExceeded, driver.ErrUnavailable)
			(<-cut)()
			time.Sleep(soon)
			w.unlock(held)
		})
	}
}

func TestACallThatGivesUpWithoutASessionMatchesErrUnavailable(t *testing.T) {
	inWorld(t, func(w *world) {
		giveUp := recipes.WithBackOff(func() recipes.BackOff { return countingBackOff{-1, new(int)} })
		c := w.connecting(w.endingAt(faults.OpCreate, 1000), giveUp)
		w.matches(w.failed(c.lock(bg)), driver.ErrUnavailable, driver.ErrSessionEnded)
	})
}

func TestAnErrorOfConnectSaysOnceThatTheStoreIsUnavailable(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.connecting(connectorFunc(func(ctx context.Context) (driver.Session, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("connect: %w: %w", driver.ErrUnavailable, ctx.Err())
		}))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		err := c.Ping(ctx)
		require.ErrorIs(w, err, driver.ErrUnavailable)
		assert.Equal(w, 1, strings.Count(err.Error(), driver.ErrUnavailable.Error()), err.Error())
	})
}

func TestTryLockEndsWithTheFirstAttemptToConnect(t *testing.T) {
	for _, name := range []string{"TryLock", "TryRLock"} {
		inWorld(t, func(w *world) {
			dials := 0
			c := w.connecting(connectorFunc(func(context.Context) (driver.Session, error) {
				dials++
				time.Sleep(5 * time.Second)
				return nil, driver.ErrUnavailable
			}))
			began := time.Now()
			_, err := c.trying()[name](bg)
			w.matches(err, driver.ErrUnavailable)
			assert.Equal(w, 5*time.Second, time.Since(began))
			assert.Equal(w, 1, dials)
		})
	}
}

func TestTryLockAsksOnceForEachStep(t *testing.T) {
	for _, op := range []faults.Op{faults.OpList, faults.OpCreate} {
		for _, committed := range []bool{false, true} {
			inWorld(t, func(w *world) {
				c := w.client("a")
				for name, try := range c.trying() {
					w.lose(c.session(), op, committed)
					_, err := try(bg)
					require.ErrorIs(w, err, driver.ErrUnavailable, name)
					time.Sleep(soon)
					assert.Empty(w, w.names(), name)
				}
			})
		}
	}
}

func TestAContextThatTheCallerCancelsIsCalledCancelled(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		ctx, cancel := context.WithCancelCause(bg)
		held := w.won(w.client("h").lock(bg))
		waiting := c.lock(ctx)
		w.waits(waiting)
		cancel(errors.New("shutting down"))
		err := w.failed(waiting)
		w.matches(err, context.Canceled)
		assert.EqualError(w, err, "dlock: q: context canceled: shutting down")
		assert.Len(w, w.names(), 1)
		before := w.store.Stats()
		require.ErrorIs(w, w.failed(c.lock(ctx)), context.Canceled)
		assert.Empty(w, w.spent(before))
		w.unlock(held)
	})
}

func TestATimeoutSaysThatThisClientHoldsTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		held := w.won(c.lock(bg))
		other := w.client("b").rlock(bg)
		_, err := c.RWMutex("q", recipes.WithTimeout(time.Second)).Lock(bg)
		require.EqualError(w, err, "dlock: q: timed out after 1s: held by this client ("+held.Node()+"), 2 ahead")
		w.unlock(held)
		w.unlock(w.won(other))
	})
}

func TestATimeoutNamesTheHolderOfTheLastListAtAnyPosition(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.won(w.client("a").lock(bg))
		second, third := w.client("b").lock(bg), w.client("c").lock(bg, recipes.WithTimeout(5*time.Second))
		polling := w.client("d").lock(bg, recipes.WithWait(recipes.Poll(time.Millisecond)), recipes.WithTimeout(5*time.Second))
		time.Sleep(2 * time.Second)
		w.unlock(first)
		held := w.won(second)
		time.Sleep(2 * time.Second)
		assert.EqualError(w, w.failedIn(2*time.Second, third), "dlock: q: timed out after 5s: held by a-W-0000000000 as of 5s ago, 2 ahead")
		require.ErrorContains(w, w.failed(polling), "dlock: q: timed out after 5s: held by b-W-0000000001, 2 ahead")
		w.unlock(held)
	})
}

func (w *world) failedIn(d time.Duration, c <-chan result) error {
	w.Helper()
	time.Sleep(d)
	return w.failed(c)
}

func TestATimeoutAsksNothingOfTheStoreAfterTheDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		began := time.Now()
		c := w.clientOf(faults.New(w.placeOnly(), func(_ context.Context, r faults.Request) (f faults.Fault) {
			if r.Op == faults.OpList || r.Op == faults.OpWatch {
				assert.Less(w, time.Since(began), time.Second)
			}
			return f
		}), "a")
		_, err := c.RWMutex("q", recipes.WithTimeout(time.Second)).Lock(bg)
		require.ErrorContains(w, err, "held by h-W-0000000000, 1 ahead")
		time.Sleep(time.Minute)
		w.unlock(held)
	})
}
