package recipes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

func TestPingAndQueueThatTimeOutMatchErrUnavailable(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		heal := w.store.Faults().CutOff(c.session())
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err := c.RWMutex("q").Queue(ctx)
		w.matches(err, context.DeadlineExceeded, driver.ErrUnavailable)
		ctx, cancel = context.WithTimeout(bg, time.Second)
		defer cancel()
		w.matches(c.Ping(ctx), context.DeadlineExceeded, driver.ErrUnavailable)
		heal()
	})
}

var lists = map[string]func(ctx context.Context, c *recipes.Client) error{
	"Ping":  func(ctx context.Context, c *recipes.Client) error { return c.Ping(ctx) },
	"Queue": func(ctx context.Context, c *recipes.Client) error { _, err := c.RWMutex("q").Queue(ctx); return err },
}

// endingAt returns a connector that ends the session at each request for op, up
// to the given number of requests.
func (w *world) endingAt(op faults.Op, requests int) driver.Connector {
	return faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
		if r.Op != op || r.Stage != faults.StageRequest || requests == 0 {
			return faults.Fault{}
		}
		requests--
		return faults.Fault{EndSession: true}
	})
}

func TestPingAndQueueWhoseSessionEndsConnectAgain(t *testing.T) {
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.connecting(w.endingAt(faults.OpList, 1))
				assert.NoError(w, list(bg, c.Client))
			})
		})
	}
}

func TestPingAndQueueWhoseSessionsEndMatchErrUnavailable(t *testing.T) {
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.connecting(w.endingAt(faults.OpList, 1000))
				w.matches(list(bg, c.Client), driver.ErrUnavailable, driver.ErrSessionEnded)
			})
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

// TryLock makes each request only once, but must connect again if the session
// ended while idle.
func TestTryLockTakesANewSessionAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		for name, try := range c.trying() {
			w.store.Faults().Expire(c.session())
			l, err := try(bg)
			require.NoError(w, err, name)
			w.unlock(l)
		}
	})
}

// texts collects every error text that a client passes to its log, hooks and
// callers.
type texts struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (x *texts) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all.Write(p)
}

func (x *texts) add(err error) {
	if err != nil {
		_, _ = x.Write([]byte(err.Error() + "\n"))
	}
}

func (x *texts) options() []recipes.Option {
	return []recipes.Option{
		recipes.WithLogger(slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		recipes.WithTrace(&recipes.Trace{
			Connected:    func(_ context.Context, i recipes.ConnectedInfo) { x.add(i.Err) },
			SessionEnded: func(_ context.Context, i recipes.SessionEndedInfo) { x.add(i.Err) },
			Failed:       func(_ context.Context, i recipes.FailedInfo) { x.add(i.Err) },
			Retrying:     func(_ context.Context, i recipes.RetryingInfo) { x.add(i.Err) },
			Downgraded:   func(_ context.Context, i recipes.DowngradedInfo) { x.add(i.Err) },
			Released:     func(_ context.Context, i recipes.ReleasedInfo) { x.add(i.Err) },
			Lost:         func(_ context.Context, i recipes.LostInfo) { x.add(i.Err) },
			Reaped:       func(_ context.Context, i recipes.ReapedInfo) { x.add(i.Err) },
		}),
	}
}

func TestNoTextSpeaksOfACancellationThatNoCallerMade(t *testing.T) {
	limited := recipes.WithTimeout(time.Second)
	for name, path := range map[string]func(w *world, x *texts){
		"a dial that is given up": func(w *world, x *texts) {
			s := recipes.NewClient(&deadAddress{}, x.options()...)
			_, err := s.RWMutex("q", limited).Lock(bg)
			require.ErrorIs(w, err, driver.ErrUnavailable)
			x.add(err)
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			x.add(s.Ping(ctx))
			require.NoError(w, s.Close())
		},
		"Close during a dial": func(w *world, x *texts) {
			s := recipes.NewClient(&deadAddress{}, x.options()...)
			waiting := going(func() (*recipes.Lock, error) { return s.RWMutex("q").Lock(bg) })
			x.add(s.Close())
			x.add(w.failed(waiting))
		},
		"Close while calls wait": func(w *world, x *texts) {
			c := w.client("a", x.options()...)
			held := w.won(w.client("h").lock(bg))
			waiting := c.lock(bg)
			heal := w.store.Faults().CutOff(c.session())
			x.add(c.Close())
			x.add(w.failed(waiting))
			heal()
			_ = held.Unlock()
			time.Sleep(time.Minute)
		},
		"Unlock during a downgrade": func(w *world, x *texts) {
			c := w.client("a", x.options()...)
			l := w.won(c.lock(bg))
			w.store.Faults().Delay(c.session(), time.Second)
			downgraded := make(chan error, 1)
			go func() { downgraded <- l.Downgrade(bg) }()
			time.Sleep(time.Millisecond)
			x.add(l.Unlock())
			err := <-downgraded
			require.Error(w, err)
			x.add(err)
			x.add(l.Err())
		},
		"Unlock in an outage": func(w *world, x *texts) {
			c := w.client("a", x.options()...)
			l := w.won(c.lock(bg))
			inner := w.won(c.rlock(l.Context(bg)))
			heal := w.store.Faults().CutOff(c.session())
			x.add(l.Unlock())
			x.add(inner.Unlock())
			heal()
			time.Sleep(soon)
		},
		"the context of a lock that was lost": func(w *world, x *texts) {
			c := w.client("a", x.options()...)
			l := w.won(c.lock(bg))
			ctx := l.Context(bg)
			w.store.Faults().Expire(c.session())
			<-l.Lost()
			for _, m := range []*recipes.RWMutex{c.RWMutex("q"), c.RWMutex("other")} {
				_, err := m.Lock(ctx)
				require.ErrorIs(w, err, recipes.ErrLost)
				x.add(err)
			}
			_, err := c.RWMutex("other").Queue(ctx)
			require.ErrorIs(w, err, recipes.ErrLost)
			x.add(err)
			x.add(c.Ping(ctx))
			x.add(l.Unlock())
		},
		"the context of a lock that was unlocked": func(w *world, x *texts) {
			c := w.client("a", x.options()...)
			l := w.won(c.lock(bg))
			ctx := l.Context(bg)
			held := w.won(c.lock(ctx))
			other, err := c.RWMutex("other").Lock(bg)
			require.NoError(w, err)
			w.unlock(held, l)
			_, err = c.RWMutex("other").Lock(ctx)
			require.ErrorIs(w, err, recipes.ErrNotHeld)
			require.ErrorIs(w, err, context.Canceled)
			x.add(err)
			x.add(other.Downgrade(ctx))
			_ = other.Unlock()
		},
		"calls that give up": func(w *world, x *texts) {
			c := w.client("a", x.options()...)
			held := w.won(w.client("h").lock(bg))
			_, err := c.RWMutex("q", limited).Lock(bg)
			x.add(err)
			heal := w.store.Faults().CutOff(c.session())
			_, err = c.RWMutex("r", limited).Lock(bg)
			x.add(err)
			heal()
			time.Sleep(soon)
			w.unlock(held)
		},
		"a session that ends": func(w *world, x *texts) {
			c := w.client("a", x.options()...)
			held := w.won(w.client("h").lock(bg))
			waiting := c.lock(bg, limited)
			l, err := c.RWMutex("r").Lock(bg)
			require.NoError(w, err)
			up := w.store.Faults().Down()
			time.Sleep(time.Minute)
			x.add(w.failed(waiting))
			x.add(l.Unlock())
			up()
			_ = held.Unlock()
			time.Sleep(soon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				x := new(texts)
				path(w, x)
				synctest.Wait()
				x.mu.Lock()
				defer x.mu.Unlock()
				require.NotEmpty(w, x.all.String())
				for _, line := range strings.Split(x.all.String(), "\n") {
					assert.NotContains(w, line, context.Canceled.Error())
				}
			})
		})
	}
}

func TestAContextThatTheCallerCancelsIsCalledCancelled(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		ctx, cancel := context.WithCancelCause(bg)
		cancel(errors.New("shutting down"))
		_, err := c.RWMutex("q").Lock(ctx)
		require.EqualError(w, err, "dlock: q: context canceled: shutting down")
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
