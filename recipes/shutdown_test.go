package recipes_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

// shutdown calls Shutdown on a goroutine, and returns once that call ends or
// blocks.
func (c *client) shutdown(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.Shutdown(ctx) }()
	synctest.Wait()
	return done
}

func (w *world) open(done <-chan error) {
	w.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		require.FailNow(w, "Shutdown has returned", "error %v", err)
	default:
	}
}

func TestShutdownWaitsForTheHolders(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		var none context.Context
		require.EqualError(w, c.Shutdown(none), "dlock: shutdown: nil context")
		l := w.won(c.lock(bg))
		done := c.shutdown(bg)

		time.Sleep(time.Hour) // much longer than a session timeout
		again := w.won(c.lock(l.Context(bg)))
		require.NoError(w, l.Downgrade(bg))
		w.unlock(l)
		w.open(done)
		require.NoError(w, again.Err())
		w.unlock(again)
		require.NoError(w, <-done)
		require.NoError(w, c.Close())
		require.NoError(w, c.Shutdown(bg))
	})
}

func TestShutdownEndsTheWaitOfWaiters(t *testing.T) {
	waits := map[string][]recipes.Option{
		"queue": {recipes.WithWait(recipes.WatchQueue())},
		"poll":  {recipes.WithWait(recipes.Poll(time.Hour))},
		"watch": nil,
	}
	for name, opts := range waits {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client("a", opts...)
				theirs := w.granted(w.client("b").RWMutex("theirs").Lock(bg))
				l := w.won(c.lock(bg))
				waiters := []<-chan result{c.lock(bg), c.rlock(bg), going(func() (*recipes.Lock, error) { return c.RWMutex("theirs", opts...).Lock(bg) })}
				done := c.shutdown(bg)
				for _, waiter := range waiters {
					require.ErrorIs(w, w.failed(waiter), recipes.ErrClosed)
				}
				assert.Equal(w, []string{l.Node()}, w.names())
				w.open(done)
				w.unlock(l)
				require.NoError(w, <-done)
				w.unlock(theirs)
			})
		})
	}
}

// The test holds a lock, because Shutdown closes a client that holds none.
func TestShutdownEndsTheWaitForTheStore(t *testing.T) {
	for name, disturb := range map[string]func(w *world, c *client) (heal func()){
		"connecting": func(w *world, c *client) func() {
			w.store.Faults().Expire(c.session())
			return w.store.Faults().Down()
		},
		"retrying": func(w *world, c *client) func() {
			w.store.Faults().LoseRequest(c.session(), faults.OpCreate)
			return func() {}
		},
		"behind an earlier call": func(w *world, c *client) func() {
			heal := w.store.Faults().CutOff(c.session())
			for range 2 { // only the second Create stays in flight
				w.failedSoon(going(func() (*recipes.Lock, error) { return c.RWMutex("other", recipes.WithTimeout(soon)).Lock(bg) }))
			}
			return heal
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client("a", recipes.WithBackOff(func() recipes.BackOff { return daily{} }))
				l := w.won(c.lock(bg))
				heal := disturb(w, c)
				call := going(func() (*recipes.Lock, error) { return c.RWMutex("other").Lock(bg) })
				w.waits(call)
				done := c.shutdown(bg)
				require.ErrorIs(w, w.failed(call), recipes.ErrClosed)
				w.open(done)
				heal()
				_ = l.Unlock()
				require.NoError(w, <-done)
			})
		})
	}
}

func TestShutdownBeforeTheGrantRefusesIt(t *testing.T) {
	inWorld(t, func(w *world) {
		var c *client
		done := make(chan error, 1)
		c = w.client("a", recipes.WithTrace(&recipes.Trace{Queued: func(_ context.Context, i recipes.QueuedInfo) {
			if i.Lock == "q" {
				go func() { done <- c.Shutdown(bg) }()
				time.Sleep(time.Nanosecond) // until Shutdown has begun
			}
		}}))
		l := w.granted(c.RWMutex("other").Lock(bg))
		call := c.lock(bg)
		time.Sleep(soon)
		require.ErrorIs(w, w.failed(call), recipes.ErrClosed)
		w.open(done)
		w.unlock(l)
		require.NoError(w, <-done)
	})
}

func TestShutdownWaitsForTheUnlockInFlight(t *testing.T) {
	inWorld(t, func(w *world) {
		slow := faults.New(w.store, func(_ context.Context, r faults.Request) (f faults.Fault) {
			if r.Op == faults.OpDelete && r.Stage == faults.StageRequest {
				f.Delay = time.Second
			}
			return f
		})
		c := w.clientOf(slow, "a")
		l := w.won(c.lock(bg))
		unlocked := going(func() (*recipes.Lock, error) { return nil, l.Unlock() })
		require.NoError(w, c.Shutdown(bg))
		require.NoError(w, (<-unlocked).err)
	})
}

func TestShutdownThatRunsOutOfTimeSaysHowManyLocksWereHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.rlock(bg))
		other := w.won(c.rlock(bg))
		again := w.won(c.rlock(l.Context(bg)))
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		err := c.Shutdown(ctx)
		w.matches(err, context.DeadlineExceeded)
		require.EqualError(w, err, "dlock: shutdown: locks that were still held and are now lost: 2: context deadline exceeded")
		for _, l := range []*recipes.Lock{l, other, again} {
			assert.True(w, isClosed(l.Lost()))
			require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		}
		require.NoError(w, c.Shutdown(bg))
	})
}

func TestShutdownPrefersSuccess(t *testing.T) {
	inWorld(t, func(w *world) {
		over, cancel := context.WithCancel(bg)
		cancel()
		for range 20 { // a select chooses at random among ready cases
			c := w.client("a")
			w.unlock(w.won(c.lock(bg)))
			require.NoError(w, c.Shutdown(over))
		}
	})
}

func TestCloseCutsShutdownShort(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		first, second := c.shutdown(bg), c.shutdown(bg)
		require.NoError(w, c.Close())
		for _, done := range []<-chan error{first, second} {
			w.matches(<-done, recipes.ErrClosed)
		}
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}

func TestALostLockCountsUntilItsUnlock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		w.store.Faults().Expire(c.session())
		<-l.Lost()
		done := c.shutdown(bg)
		w.open(done)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.NoError(w, <-done)
	})
}

func TestNoLockIsHeldAfterShutdown(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 50 {
			c := w.client("a")
			var workers sync.WaitGroup
			for range 8 {
				workers.Go(func() {
					for {
						l, err := c.RWMutex("q").RLock(bg)
						if err != nil {
							assert.ErrorIs(w, err, recipes.ErrClosed)
							return
						}
						if !assert.NoError(w, l.Unlock()) { // Shutdown must wait for this lock
							return
						}
					}
				})
			}
			require.NoError(w, c.Shutdown(bg))
			workers.Wait()
		}
	})
}
