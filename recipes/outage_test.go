package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// limits holds, by name, the two ways to limit a call of Lock to one second.
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

var lists = map[string]func(ctx context.Context, c *recipes.Client) error{
	"Ping":  func(ctx context.Context, c *recipes.Client) error { return c.Ping(ctx) },
	"Queue": func(ctx context.Context, c *recipes.Client) error { _, err := c.RWMutex("q").Queue(ctx); return err },
}

func TestACallThatGivesUpWithoutASessionMatchesErrUnavailable(t *testing.T) {
	inWorld(t, func(w *world) {
		giveUp := recipes.WithBackOff(func() recipes.BackOff { return countingBackOff{-1, new(int)} })
		c := w.connecting(w.endingAt(faults.OpCreate, 1000), giveUp)
		w.matches(w.failed(c.lock(bg)), driver.ErrUnavailable, driver.ErrSessionEnded)
	})
}

// deadAddress is a connector whose Connect times out after five seconds.
type deadAddress struct{ dials atomic.Int64 }

func (c *deadAddress) Connect(ctx context.Context) (driver.Session, error) {
	c.dials.Add(1)
	select {
	case <-time.After(5 * time.Second):
		return nil, driver.ErrUnavailable
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type markedAddress struct{}

func (markedAddress) Connect(ctx context.Context) (driver.Session, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("markedAddress: connect: %w: %w", driver.ErrUnavailable, ctx.Err())
}

func TestAnErrorOfConnectSaysOnceThatTheStoreIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := recipes.NewClient(markedAddress{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Ping(ctx)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.Equal(t, 1, strings.Count(err.Error(), driver.ErrUnavailable.Error()), err.Error())
		require.NoError(t, s.Close())
	})
}

func TestTryLockEndsWithTheFirstAttemptToConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, try := range []func(*recipes.RWMutex, context.Context) (*recipes.Lock, error){(*recipes.RWMutex).TryLock, (*recipes.RWMutex).TryRLock} {
			var c deadAddress
			s := recipes.NewClient(&c)
			began := time.Now()
			_, err := try(s.RWMutex("q"), t.Context())
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.NotErrorIs(t, err, recipes.ErrTimeout)
			assert.Equal(t, 5*time.Second, time.Since(began))
			assert.EqualValues(t, 1, c.dials.Load())
			require.NoError(t, s.Close())
		}
	})
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

// asked is a connector that records when its sessions call List and Watch.
type asked struct {
	driver.Connector
	mu sync.Mutex
	at []time.Time
}

func (c *asked) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	return askedSession{s, c}, err
}

func (c *asked) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
}

type askedSession struct {
	driver.Session
	by *asked
}

func (s askedSession) List(ctx context.Context, queue string) ([]driver.Node, error) {
	s.by.note()
	return s.Session.List(ctx, queue)
}

// Create returns only the place, so that the waiter must list the queue and set
// a watch.
func (s askedSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	j, err := s.Session.Create(ctx, queue, n)
	return driver.Joined{Place: j.Place}, err
}

func (s askedSession) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	s.by.note()
	return s.Session.Watch(ctx, queue, p, ahead...)
}

func TestATimeoutAsksNothingOfTheStoreAfterTheDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		store := &asked{Connector: w.store}
		c := w.clientOf(store, "a")
		began := time.Now()
		_, err := c.RWMutex("q", recipes.WithTimeout(time.Second)).Lock(bg)
		require.ErrorContains(w, err, "held by h-W-0000000000, 1 ahead")
		time.Sleep(time.Minute)
		store.mu.Lock()
		defer store.mu.Unlock()
		require.NotEmpty(w, store.at)
		for _, at := range store.at {
			assert.Less(w, at.Sub(began), time.Second)
		}
		w.unlock(held)
	})
}
