package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

const (
	idle  = 100 * time.Millisecond
	turns = 5
)

func retention() recipes.Option {
	return recipes.WithRetention(recipes.Retention{Idle: idle, Turns: turns})
}

func TestARetainedLockIsTakenAgainWithoutARequest(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		l := w.won(c.lock(bg))
		token := l.Token()
		w.unlock(l)
		synctest.Wait() // until the client watches the queue
		before := w.store.Stats()
		for range 100 {
			l := w.won(c.lock(bg))
			assert.Equal(w, token, l.Token())
			w.unlock(l)
			w.unlock(w.won(c.rlock(bg)))
		}
		assert.Empty(w, w.spent(before))
		assert.Len(w, w.names(), 1)
	})
}

func TestAnIdleEntryIsRemovedAfterAWhile(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		for range 3 { // each use restarts the idle time
			w.unlock(w.won(c.lock(bg)))
			time.Sleep(idle - 1)
			assert.Len(w, w.names(), 1)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Empty(w, w.names())
		assert.Zero(w, w.store.Stats().Watches)
		assert.Zero(w, c.Cohorts())
	})
}

func TestATryLockOfAnotherClientFailsNoLongerThanTheEntryIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.unlock(w.won(w.client("a", retention()).lock(bg)))
		other := w.client("b")
		_, err := other.RWMutex("q").TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		time.Sleep(idle)
		synctest.Wait()
		l, err := other.RWMutex("q").TryLock(bg)
		require.NoError(w, err)
		w.unlock(l)
	})
}

func TestAnIdleEntryIsRemovedAtOnceForAWaiterOfAnotherClient(t *testing.T) {
	inWorld(t, func(w *world) {
		w.unlock(w.won(w.client("a", retention()).lock(bg)))
		began := time.Now()
		l := w.won(w.client("b").lock(bg))
		assert.Zero(w, time.Since(began))
		w.unlock(l)
	})
}

func TestAnIdleReadersEntryDoesNotKeepOutAWriterOfTheCohort(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithRetention(recipes.Retention{Idle: time.Hour}))
		for range 3 {
			w.unlock(w.won(c.rlock(bg)))
			assert.Len(w, w.names(), 1)
			w.unlock(w.won(c.lock(bg)))
			w.unlock(w.won(c.rlock(bg))) // reuses the node that was created for the writer
			w.unlock(w.won(c.lock(bg)))
			time.Sleep(time.Hour)
		}
	})
}

func TestAnIdleReadersEntryDoesNotFailATryLockOfTheCohort(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithRetention(recipes.Retention{Idle: time.Hour}))
		w.unlock(w.won(c.rlock(bg)))
		l, err := c.RWMutex("q").TryLock(bg)
		require.NoError(w, err)
		w.unlock(l)
	})
}

func TestATryLockDoesNotWaitForTheRemovalOfAnEntryLongerThanItsContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithRetention(recipes.Retention{Idle: time.Hour}))
		w.unlock(w.won(c.rlock(bg)))
		synctest.Wait()
		defer w.store.Faults().CutOff(c.session())()
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := c.RWMutex("q").TryLock(ctx)
		require.ErrorIs(w, err, recipes.ErrTimeout)
		assert.Equal(w, time.Millisecond, time.Since(began))
	})
}

func TestAnotherClientGetsTheLockAfterABoundedNumberOfTurns(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		var stop atomic.Bool
		var had atomic.Int64
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				for !stop.Load() {
					l, err := c.RWMutex("q").Lock(bg)
					if !assert.NoError(w, err) {
						return
					}
					time.Sleep(time.Millisecond)
					had.Add(1)
					assert.NoError(w, l.Unlock())
				}
			})
		}
		other := w.client("b")
		for range 5 {
			time.Sleep(50*time.Millisecond + time.Microsecond)
			before := had.Load()
			l := w.won(func() <-chan result {
				c := make(chan result, 1)
				go func() {
					l, err := other.RWMutex("q").Lock(bg)
					c <- result{l, err}
				}()
				time.Sleep(20 * time.Millisecond)
				return c
			}())
			assert.LessOrEqual(w, had.Load()-before, int64(turns+1))
			w.unlock(l)
		}
		stop.Store(true)
		group.Wait()
		assert.Greater(w, had.Load(), int64(200), "the goroutines of the process go on taking turns")
	})
}

func TestReadersOfACohortShareOneEntry(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		var held []*recipes.Lock
		for range 5 {
			held = append(held, w.won(c.rlock(bg)))
		}
		assert.Len(w, w.names(), 1)
		writer := c.lock(bg)
		w.waits(writer)
		late := c.rlock(bg)
		w.waits(late) // behind the writer
		for _, l := range held {
			w.waits(writer)
			w.unlock(l)
		}
		l := w.won(writer)
		assert.Equal(w, recipes.Exclusive, l.Mode())
		assert.Greater(w, l.Token(), held[0].Token())
		w.waits(late)
		w.unlock(l)
		w.unlock(w.won(late))
	})
}

func TestACohortGrantsTheLockInTheOrderOfArrival(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		l := w.won(c.lock(bg))
		var line []<-chan result
		for range 20 {
			line = append(line, c.lock(bg))
		}
		assert.Len(w, w.names(), 1)
		for _, next := range line {
			w.waits(next)
			w.unlock(l)
			l = w.won(next)
		}
		w.unlock(l)
	})
}

func TestAWaiterThatGivesUpLeavesThePositionInTheQueueToTheCohort(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		c := w.client("a", retention())
		ctx, cancel := context.WithCancel(bg)
		first := c.lock(ctx)
		second := c.lock(bg)
		later := w.client("z").lock(bg)
		names := w.names()
		cancel()
		require.ErrorIs(w, w.failed(first), context.Canceled)
		assert.Equal(w, names, w.names())
		w.unlock(held)
		l := w.won(second)
		w.waits(later)
		w.unlock(l)
		w.unlock(w.won(later))
	})
}

func TestTheEntryIsRemovedWhenTheLastWaiterGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		c := w.client("a", retention())
		ctx, cancel := context.WithCancel(bg)
		calls := []<-chan result{c.lock(ctx), c.rlock(ctx), c.lock(ctx)}
		cancel()
		for _, call := range calls {
			require.ErrorIs(w, w.failed(call), context.Canceled)
		}
		synctest.Wait()
		assert.Equal(w, []string{held.Node()}, w.names())
		w.unlock(held)
	})
}

// Once the waiting writer has given up, the readers behind it must not wait any
// longer.
func TestReadersAreGrantedTheLockWhenTheWriterBeforeThemGivesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		reader := w.won(w.client("r").rlock(bg))
		c := w.client("a", retention())
		ctx, cancel := context.WithCancel(bg)
		writer := c.lock(ctx)
		waiting := c.rlock(bg)
		w.waits(waiting)
		cancel()
		_ = w.failed(writer)
		w.unlock(w.won(waiting), reader)
	})
}

func TestATimeoutNamesTheHolderAlsoWithRetention(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		c := w.client("a", retention(), recipes.WithTimeout(time.Second))
		first, second := c.lock(bg), c.lock(bg)
		time.Sleep(2 * time.Second)
		require.EqualError(w, w.failed(first), "dlock: q: timed out after 1s: held by h-W-0000000000, 1 ahead")
		require.ErrorContains(w, w.failed(second), "held by h-W-0000000000, ")
		w.unlock(held)
		l := w.won(c.lock(bg))
		err := w.failed(func() <-chan result { r := c.lock(bg); time.Sleep(2 * time.Second); return r }())
		require.ErrorIs(w, err, recipes.ErrTimeout)
		require.ErrorContains(w, err, "held by this client ("+l.Node()+"), 1 ahead")
		w.unlock(l)
	})
}

func TestALossEndsATurnAndTheNextTurnGetsANewEntry(t *testing.T) {
	for name, harm := range map[string]func(w *world, c *client, node string){
		"session":      func(w *world, c *client, _ string) { w.store.Faults().Expire(c.session()) },
		"node removed": func(w *world, _ *client, node string) { w.store.Faults().RemoveNode("q", node) },
	} {
		for _, inUse := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", in use ", inUse), func(t *testing.T) {
				inWorld(t, func(w *world) {
					var losses atomic.Int64
					c := w.client("a", retention(), recipes.WithTrace(&recipes.Trace{Lost: func(context.Context, recipes.LostInfo) { losses.Add(1) }}))
					w.unlock(w.won(c.lock(bg)))
					synctest.Wait()
					held := w.won(c.lock(bg))
					var waiting <-chan result
					if inUse {
						waiting = c.lock(bg)
					} else {
						w.unlock(held)
					}
					harm(w, c, held.Node())
					time.Sleep(time.Second) // until the client notices the harm
					if !inUse {
						waiting = c.lock(bg)
						require.ErrorIs(w, held.Unlock(), recipes.ErrNotHeld)
						assert.Zero(w, losses.Load(), "the hook Lost is not called for a node that no call held")
					} else {
						require.ErrorIs(w, held.Err(), recipes.ErrLost)
						require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
						assert.EqualValues(w, 1, losses.Load())
					}
					l := w.won(waiting)
					assert.Greater(w, l.Token(), held.Token())
					require.NoError(w, l.Err())
					w.unlock(l)
				})
			})
		}
	}
}

func TestCloseEndsTheWaitersAndTheIdleEntryOfACohort(t *testing.T) {
	inWorld(t, func(w *world) {
		idler := w.client("a", retention())
		w.unlock(w.won(idler.lock(bg)))
		require.NoError(w, idler.Close())
		assert.Empty(w, w.names())

		c := w.client("b", retention())
		held := w.won(c.lock(bg))
		waiting, reading := c.lock(bg), c.rlock(bg)
		require.NoError(w, c.Close())
		require.ErrorIs(w, w.failed(waiting), recipes.ErrClosed)
		require.ErrorIs(w, w.failed(reading), recipes.ErrClosed)
		require.ErrorIs(w, held.Err(), recipes.ErrLost)
		require.ErrorIs(w, w.failed(c.lock(bg)), recipes.ErrClosed)
		assert.Zero(w, c.Cohorts())

		d := w.client("d", retention())
		other := w.won(w.client("h").lock(bg))
		waiting = d.lock(bg)
		require.NoError(w, d.Close())
		require.ErrorIs(w, w.failed(waiting), recipes.ErrClosed)
		w.unlock(other)
	})
}

func TestADowngradedEntryIsRemovedByTheLastUnlock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		l := w.won(c.lock(bg))
		require.NoError(w, l.Downgrade(bg))
		w.unlock(w.won(w.client("r").rlock(bg)))
		waiting := c.lock(bg)
		w.waits(waiting)
		w.unlock(l)
		next := w.won(waiting)
		assert.Greater(w, next.Token(), l.Token())
		w.unlock(next)
	})
}

func TestReEntryIsNoTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		m := c.RWMutex("q")
		l := w.won(c.lock(bg))
		ctx := l.Context(bg)
		waiting := c.lock(bg)
		for range 2 * turns {
			inner, err := m.Lock(ctx)
			require.NoError(w, err)
			reading, err := m.RLock(inner.Context(ctx))
			require.NoError(w, err)
			w.unlock(reading, inner)
		}
		w.waits(waiting)
		w.unlock(l)
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrNotHeld)
		next := w.won(waiting)
		assert.Equal(w, l.Token(), next.Token())
		_, err := m.TryLock(context.WithoutCancel(ctx))
		require.ErrorIs(w, err, recipes.ErrLocked, "the context belongs to a turn that is over")
		reader := w.client("b", retention())
		w.unlock(next)
		r := w.won(reader.rlock(bg))
		_, err = reader.RWMutex("q").Lock(r.Context(bg))
		require.ErrorIs(w, err, recipes.ErrUpgrade)
		w.unlock(r)
	})
}

type hookedContext struct {
	context.Context
	run func()
}

func (c hookedContext) Err() error {
	err := c.Context.Err()
	c.run()
	return err
}

func TestAReentryDuringUnlockDoesNotJoinTheNextTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		l := w.won(c.lock(bg))
		next := c.lock(bg)
		ctx := hookedContext{context.WithoutCancel(l.Context(bg)), func() { _ = l.Unlock() }}
		_, err := c.RWMutex("q").TryLock(ctx)
		require.ErrorIs(w, err, recipes.ErrLocked)
		w.unlock(w.won(next))
	})
}

// A retained node must not be reused once the lease has expired, even if the
// process was paused and no timer has run yet.
func TestAnEntryOfASessionThatHasEndedIsNotLentAgain(t *testing.T) {
	for name, enter := range map[string]func(*recipes.RWMutex, context.Context) (*recipes.Lock, error){
		"Lock": (*recipes.RWMutex).Lock, "RLock": (*recipes.RWMutex).RLock,
		"TryLock": (*recipes.RWMutex).TryLock, "TryRLock": (*recipes.RWMutex).TryRLock,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client("a", retention())
				w.unlock(w.won(c.lock(bg)))
				before := c.session()
				w.store.Faults().Pause(before, time.Hour)
				l, err := enter(c.RWMutex("q"), bg)
				require.NoError(w, err)
				require.NoError(w, l.Err())
				require.NotSame(w, before, c.session())
				w.unlock(l)
			})
		})
	}
}

func TestTheEntryOfATryLockIsRetainedToo(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		m := c.RWMutex("q")
		l, err := m.TryLock(bg)
		require.NoError(w, err)
		_, err = m.TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		waiting := c.lock(bg)
		assert.Len(w, w.names(), 1)
		w.unlock(l)
		next := w.won(waiting)
		assert.Equal(w, l.Token(), next.Token())
		w.unlock(next)
		l, err = m.TryRLock(bg)
		require.NoError(w, err)
		also, err := m.TryRLock(bg)
		require.NoError(w, err)
		_, err = m.TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		w.unlock(l, also)
	})
}

type callKey struct{}

func call(name string) context.Context { return context.WithValue(bg, callKey{}, name) }

type ledger struct {
	mu    sync.Mutex
	lines []string
}

func (l *ledger) note(ctx context.Context, hook string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint(ctx.Value(callKey{}), " ", hook))
}

func (l *ledger) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (l *ledger) trace() recipes.Option {
	return recipes.WithTrace(&recipes.Trace{
		Granted:  func(ctx context.Context, _ recipes.GrantedInfo) { l.note(ctx, "granted") },
		Failed:   func(ctx context.Context, _ recipes.FailedInfo) { l.note(ctx, "failed") },
		Released: func(ctx context.Context, _ recipes.ReleasedInfo) { l.note(ctx, "released") },
		Lost:     func(ctx context.Context, _ recipes.LostInfo) { l.note(ctx, "lost") },
	})
}

func TestGrantsAndTheirCounterpartBalance(t *testing.T) {
	scenes := map[string]func(w *world, c *client, l *ledger){
		"one turn after the other": func(w *world, c *client, l *ledger) {
			for _, name := range []string{"1", "2", "3"} {
				w.unlock(w.won(c.lock(call(name))))
				assert.Equal(w, []string{name + " granted", name + " released"}, l.taken())
			}
			r, err := c.RWMutex("q").TryRLock(call("4"))
			require.NoError(w, err)
			w.unlock(r)
			assert.Equal(w, []string{"4 granted", "4 released"}, l.taken())
		},
		"a waiter": func(w *world, c *client, l *ledger) {
			first := w.won(c.lock(call("1")))
			second := c.lock(call("2"))
			w.unlock(first)
			w.unlock(w.won(second))
			assert.ElementsMatch(w, []string{"1 granted", "1 released", "2 granted", "2 released"}, l.taken())
		},
		"readers together": func(w *world, c *client, l *ledger) {
			first, second := w.won(c.rlock(call("1"))), w.won(c.rlock(call("2")))
			w.unlock(first)
			assert.Equal(w, []string{"1 granted", "2 granted", "1 released"}, l.taken())
			w.unlock(second)
			assert.Equal(w, []string{"2 released"}, l.taken())
		},
		"re-entry that outlasts the first Lock": func(w *world, c *client, l *ledger) {
			beside := w.won(c.rlock(call("1")))
			outer := w.won(c.rlock(call("2")))
			inner := w.won(c.rlock(outer.Context(call("3"))))
			w.unlock(outer)
			assert.Equal(w, []string{"1 granted", "2 granted"}, l.taken())
			w.unlock(inner)
			assert.Equal(w, []string{"2 released"}, l.taken())
			w.unlock(beside)
			assert.Equal(w, []string{"1 released"}, l.taken())
		},
		"a call that is cancelled as it wins": func(w *world, c *client, l *ledger) {
			ctx := &endsWhenAsked{}
			ctx.Context, ctx.cancel = context.WithCancel(call("2"))
			first := w.won(c.lock(call("1")))
			second := c.lock(ctx)
			w.unlock(first)
			require.ErrorIs(w, w.failed(second), context.Canceled)
			time.Sleep(soon)
			assert.ElementsMatch(w, []string{"1 granted", "1 released", "2 failed"}, l.taken())
		},
		"a downgrade": func(w *world, c *client, l *ledger) {
			first := w.won(c.lock(call("1")))
			second := c.rlock(call("2"))
			require.NoError(w, first.Downgrade(bg))
			w.unlock(w.won(second), first)
			assert.Equal(w, []string{"1 granted", "2 granted", "2 released", "1 released"}, l.taken())
		},
		"readers that give their place up": func(w *world, c *client, l *ledger) {
			first := w.won(c.rlock(call("1")))
			second := w.won(c.rlock(call("2")))
			writer := w.client("b").lock(bg)
			third := c.rlock(call("3"))
			w.unlock(first, second)
			w.unlock(w.won(writer))
			w.unlock(w.won(third))
			assert.Equal(w, []string{"1 granted", "2 granted", "1 released", "2 released", "3 granted", "3 released"}, l.taken())
		},
		"a lost session": func(w *world, c *client, l *ledger) {
			first := w.won(c.rlock(call("1")))
			second := w.won(c.rlock(call("2")))
			third := w.won(c.rlock(call("3")))
			w.unlock(second)
			w.store.Faults().Expire(c.session())
			<-first.Lost()
			time.Sleep(soon)
			require.ErrorIs(w, first.Unlock(), recipes.ErrLost)
			require.ErrorIs(w, third.Unlock(), recipes.ErrLost)
			lines := l.taken()
			assert.Equal(w, []string{"1 granted", "2 granted", "3 granted", "2 released"}, lines[:4])
			assert.ElementsMatch(w, []string{"1 lost", "3 lost"}, lines[4:])
		},
		"a node that was removed": func(w *world, c *client, l *ledger) {
			writer := w.won(c.lock(call("1")))
			w.store.Faults().RemoveNode("q", writer.Node())
			_ = writer.Unlock()
			time.Sleep(soon)
			lines := l.taken()
			assert.Len(w, lines, 2)
			assert.Equal(w, "1 granted", lines[0])
		},
		"Close": func(w *world, c *client, l *ledger) {
			first, second := w.won(c.rlock(call("1"))), w.won(c.rlock(call("2")))
			require.NoError(w, c.Close())
			require.ErrorIs(w, first.Unlock(), recipes.ErrLost)
			require.ErrorIs(w, second.Unlock(), recipes.ErrLost)
			lines := l.taken()
			assert.Equal(w, []string{"1 granted", "2 granted"}, lines[:2])
			assert.ElementsMatch(w, []string{"1 lost", "2 lost"}, lines[2:])
		},
	}
	for name, scene := range scenes {
		for _, retained := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", retained ", retained), func(t *testing.T) {
				inWorld(t, func(w *world) {
					l := new(ledger)
					opts := []recipes.Option{l.trace()}
					if retained {
						opts = append(opts, retention())
					}
					scene(w, w.client("a", opts...), l)
					time.Sleep(soon)
					synctest.Wait()
					assert.Empty(w, l.taken(), "a hook has run after the scene was over")
				})
			})
		}
	}
}

func TestAHookThatPanicsGivesTheTurnBack(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		assert.Panics(w, func() {
			_, _ = c.RWMutex("q", recipes.WithTrace(&recipes.Trace{Granted: func(context.Context, recipes.GrantedInfo) { panic("x") }})).Lock(bg)
		})
		w.unlock(w.won(c.lock(bg)))
	})
}

var errBroken = errors.New("broken for good")

type broken struct{}

func (broken) Connect(context.Context) (driver.Session, error) { return nil, errBroken }

func TestAnErrorOfTheStoreEndsTheWaitOfAll(t *testing.T) {
	inWorld(t, func(w *world) {
		c := recipes.NewClient(broken{}, retention())
		defer c.Close()
		for range 3 {
			calls := []<-chan result{}
			for range 5 {
				calls = append(calls, going(func() (*recipes.Lock, error) { return c.RWMutex("q").Lock(bg) }))
			}
			// The calls return late, because the client backs off after failing
			// to connect.
			time.Sleep(10 * time.Second)
			for _, call := range calls {
				require.ErrorIs(w, w.failed(call), errBroken)
			}
		}
		assert.Zero(w, c.Cohorts())
	})
}

type mute struct{ driver.Connector }

func (b mute) Connect(ctx context.Context) (driver.Session, error) {
	s, err := b.Connector.Connect(ctx)
	return muteSession{s}, err
}

type muteSession struct{ driver.Session }

func (s muteSession) WatchQueue(context.Context, string) (driver.Watch, error) {
	return driver.Watch{}, driver.ErrUnavailable
}

func TestTurnsAreBoundedAlsoIfTheQueueCannotBeWatched(t *testing.T) {
	inWorld(t, func(w *world) { w.requireBoundedTurns(w.clientOf(mute{w.store}, "a", retention())) })
}

// All requests to watch the queue are lost, except the first, so the client
// does not learn that another one waits. It must still pass the lock on after a
// few turns.
func TestTurnsAreBoundedAlsoIfTheQueueCannotBeWatchedAnyMore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.requireBoundedTurns(w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			return faults.Fault{Lose: r.Op == faults.OpWatchQueue && r.Stage == faults.StageRequest && r.Nth > 1}
		}), "a", retention()))
	})
}

// requireBoundedTurns requires that another client gets the lock although many
// goroutines of c keep taking it.
func (w *world) requireBoundedTurns(c *client) {
	w.Helper()
	l := w.won(c.lock(bg))
	other := w.client("b").lock(bg)
	var line []<-chan result
	for range 3 * turns {
		line = append(line, c.lock(bg))
	}
	for _, next := range line[:turns-1] {
		time.Sleep(idle)
		w.unlock(l)
		l = w.won(next)
	}
	w.unlock(l)
	w.unlock(w.won(other))
	for _, next := range line[turns-1:] {
		w.unlock(w.won(next))
	}
}

// In this randomized test, goroutines of several clients lock, downgrade, give
// up and lose their connection. Writers must hold the lock alone, everyone must
// get it, and no node may be left.
func TestProcessesWithRetentionExcludeEachOther(t *testing.T) {
	for seed := range uint64(20) {
		inWorld(t, func(w *world) {
			inside := &holders{held: map[*recipes.Lock]bool{}}
			var group sync.WaitGroup
			for p := range 3 {
				var opts []recipes.Option
				if p < 2 {
					opts = append(opts, retention())
				}
				c := w.client(fmt.Sprint("p", p), opts...)
				for g := range 6 {
					rnd := rand.New(rand.NewPCG(seed, uint64(10*p+g)))
					group.Go(func() { mingle(w, c.RWMutex("q"), rnd, inside) })
				}
				go func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(1000+p)))
					time.Sleep(rand.N(100 * time.Millisecond))
					if rnd.IntN(3) == 0 {
						w.store.Faults().Expire(c.session())
					}
				}()
			}
			group.Wait()
			time.Sleep(time.Second)
		})
	}
}

type holders struct {
	mu   sync.Mutex
	held map[*recipes.Lock]bool
}

func (h *holders) enter(l *recipes.Lock) (beside []*recipes.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for other := range h.held {
		if (l.Mode() == recipes.Exclusive || other.Mode() == recipes.Exclusive) && other.Err() == nil && l.Err() == nil {
			beside = append(beside, other)
		}
	}
	h.held[l] = true
	return beside
}

func (h *holders) leave(l *recipes.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, l)
}

func mingle(w *world, m *recipes.RWMutex, rnd *rand.Rand, inside *holders) {
	upTo := func(limit time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(limit))) }
	for range 30 {
		ctx, cancel := context.WithCancel(bg)
		if rnd.IntN(5) == 0 {
			time.AfterFunc(upTo(20*time.Millisecond), cancel)
		}
		take := []func(context.Context) (*recipes.Lock, error){m.Lock, m.RLock, m.TryLock, m.TryRLock}[rnd.IntN(4)]
		if l, err := take(ctx); err == nil {
			if beside := inside.enter(l); len(beside) > 0 {
				w.Errorf("%v %s is held beside %v %s", l.Mode(), l.Node(), beside[0].Mode(), beside[0].Node())
			}
			select {
			case <-l.Lost():
			case <-time.After(upTo(3 * time.Millisecond)):
			}
			inside.leave(l)
			_ = l.Unlock()
		}
		cancel()
		time.Sleep(upTo(5 * time.Millisecond))
	}
}

func TestRetainedRequestsAreFew(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		before := w.store.Stats()
		var group sync.WaitGroup
		for range 64 {
			group.Go(func() {
				for range 20 {
					l, err := c.RWMutex("q").Lock(bg)
					if assert.NoError(w, err) {
						assert.NoError(w, l.Unlock())
					}
				}
			})
		}
		group.Wait()
		spent := w.spent(before)
		assert.LessOrEqual(w, spent[faults.OpCreate], int64(2))
	})
}

var downgrades = map[string]func(w *world, c *client, l *recipes.Lock) *recipes.Lock{
	"Downgrade": func(w *world, _ *client, l *recipes.Lock) *recipes.Lock {
		require.NoError(w, l.Downgrade(bg))
		return l
	},
	"Unlock of the exclusive one of two": func(w *world, c *client, l *recipes.Lock) *recipes.Lock {
		inner := w.won(c.rlock(l.Context(bg)))
		w.unlock(l)
		return inner
	},
}

func TestADowngradeGrantsTheLockToReadersOfTheSameClient(t *testing.T) {
	for name, downgrade := range downgrades {
		for _, plainly := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", without optional interfaces ", plainly), func(t *testing.T) {
				inWorld(t, func(w *world) {
					var store driver.Connector = w.store
					if plainly {
						store = plain{w.store}
					}
					c := w.clientOf(store, "a", retention())
					l := w.won(c.lock(bg))
					first, second := c.rlock(bg), c.rlock(bg)
					writer := c.lock(bg)
					behind := c.rlock(bg)
					w.waits(first)
					l = downgrade(w, c, l)
					held := []*recipes.Lock{w.won(first), w.won(second)}
					w.waits(writer)
					w.waits(behind)
					w.unlock(l)
					w.waits(writer)
					w.unlock(held...)
					w.unlock(w.won(writer))
					w.unlock(w.won(behind))
				})
			})
		}
	}
}

// A downgrade must grant the lock to readers that began to wait before the
// writer, even if retention makes them share the holder's node.
func TestADowngradeGrantsTheLockToReadersOfTheSameClientBeforeALaterWriterOfAnotherClient(t *testing.T) {
	for name, downgrade := range downgrades {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client("a", retention())
				l := w.won(c.lock(bg))
				first, second := c.rlock(bg), c.rlock(bg)
				writer := w.client("b").lock(bg)
				l = downgrade(w, c, l)
				held := []*recipes.Lock{l, w.won(first), w.won(second)}
				late := c.rlock(bg)
				w.waits(late)
				w.unlock(held...)
				last := w.won(writer)
				w.waits(late)
				w.unlock(last)
				w.unlock(w.won(late))
			})
		})
	}
}

func TestAReaderThatArrivesAfterADowngradeIsGrantedTheLockToo(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprint("with a reader elsewhere ", elsewhere), func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client("a", recipes.WithRetention(recipes.Retention{Turns: 1}))
				l := w.won(c.lock(bg))
				var held []*recipes.Lock
				if elsewhere {
					waiting := w.client("b").rlock(bg)
					require.NoError(w, l.Downgrade(bg))
					held = append(held, w.won(waiting))
				} else {
					require.NoError(w, l.Downgrade(bg))
				}
				held = append(held, w.won(c.rlock(bg)), w.won(c.rlock(bg)))
				w.waits(c.lock(w.Context()))
				w.unlock(l)
				w.unlock(held...)
			})
		})
	}
}

// kept returns a reader's Lock on a retained node that was created for a
// writer.
func (w *world) kept(c *client) *recipes.Lock {
	w.Helper()
	w.unlock(w.won(c.lock(bg)))
	l := w.won(c.rlock(bg))
	require.Equal(w, "a-W-0000000000", l.Node())
	return l
}

func TestReadersOfAnotherClientHoldBesideAReaderOnARetainedEntry(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		l := w.kept(c)
		first, second := w.won(w.client("b").rlock(bg)), w.won(w.client("d").rlock(bg))
		assert.Equal(w, "a-R-0000000000", l.Node())
		require.NoError(w, l.Err())
		local := w.won(c.rlock(bg))
		assert.Greater(w, local.Token(), l.Token(), "the reader has a node of its own")
		time.Sleep(soon)
		w.unlock(l, first, second, local)
	})
}

func TestReadersOnARetainedEntryDoNotKeepOutAReaderOfAnotherClient(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		l := w.won(c.lock(bg))
		local := c.rlock(bg)
		elsewhere := w.client("b").rlock(bg)
		w.unlock(l)
		w.unlock(w.won(local), w.won(elsewhere))
	})
}

func TestAWriterOfAnotherClientWaitsOnlyForTheReadersThatHold(t *testing.T) {
	for name, take := range map[string]func(w *world, c *client) *recipes.Lock{
		"kept place":      (*world).kept,
		"place of reader": func(w *world, c *client) *recipes.Lock { return w.won(c.rlock(bg)) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client("a", retention())
				l := take(w, c)
				also := w.won(c.rlock(bg))
				writer := w.client("b").lock(bg)
				local := c.rlock(bg)
				w.waits(local)
				w.unlock(l)
				w.waits(writer)
				w.unlock(also)
				last := w.won(writer)
				w.waits(local)
				w.unlock(last)
				w.unlock(w.won(local))
			})
		})
	}
}

func TestAReaderOnADetachedEntryIsToldOfALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		l := w.kept(c)
		elsewhere := w.won(w.client("b").rlock(bg))
		w.store.Faults().RemoveNode("q", l.Node())
		time.Sleep(soon)
		require.ErrorIs(w, l.Err(), recipes.ErrLost)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		w.unlock(elsewhere)
	})
}

func TestTurnsCountFromTheOneInWhichAnotherClientBeginsToWait(t *testing.T) {
	for most := 1; most <= 3; most++ {
		for _, first := range []string{"line", "other"} {
			for _, settled := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d, %s first, settled %v", most, first, settled), func(t *testing.T) {
					inWorld(t, func(w *world) {
						c := w.client("a", recipes.WithRetention(recipes.Retention{Turns: most}))
						l := w.won(c.lock(bg))
						if settled {
							w.unlock(l)
							l = w.won(c.lock(bg))
							time.Sleep(soon)
						}
						var line []<-chan result
						var other <-chan result
						queueUp := func() {
							for range most {
								line = append(line, c.lock(bg))
							}
						}
						if first == "line" {
							queueUp()
						}
						other = w.client("b").lock(bg)
						if first == "other" {
							queueUp()
						}
						for i := range most - 1 {
							w.unlock(l)
							l = w.won(line[i])
							w.waits(other)
						}
						w.unlock(l)
						l = w.won(other)
						w.waits(line[most-1])
						w.unlock(l)
						w.unlock(w.won(line[most-1]))
					})
				})
			}
		}
	}
}

// duringUnlock is a parent context that calls its field run in the middle of
// Unlock, because Unlock unregisters from the parent as soon as the Lock is no
// longer held.
type duringUnlock struct {
	context.Context
	done chan struct{}
	run  func()
}

func (c *duringUnlock) Done() <-chan struct{} { return c.done }

func (c *duringUnlock) AfterFunc(func()) (stop func() bool) {
	return func() bool {
		c.run()
		return true
	}
}

// unlockWith unlocks l, and calls run in the middle of Unlock, as soon as l is
// no longer held.
func (w *world) unlockWith(l *recipes.Lock, run func()) {
	w.Helper()
	runs := 0
	once := sync.OnceFunc(func() { runs++; run() })
	l.Context(&duringUnlock{bg, make(chan struct{}), once})
	w.unlock(l)
	require.Equal(w, 1, runs)
}

func TestACallDuringTheEndOfTheLastTurnIsNotGrantedTheLock(t *testing.T) {
	stores := map[string]func(*world) driver.Connector{
		"watched": func(w *world) driver.Connector { return w.store },
		"mute":    func(w *world) driver.Connector { return mute{w.store} },
	}
	for name, store := range stores {
		for _, held := range []recipes.Mode{recipes.Shared, recipes.Exclusive} {
			for _, wanted := range []recipes.Mode{recipes.Shared, recipes.Exclusive} {
				t.Run(fmt.Sprintf("%s, %v after %v", name, wanted, held), func(t *testing.T) {
					inWorld(t, func(w *world) {
						c := w.clientOf(store(w), "a", recipes.WithRetention(recipes.Retention{Turns: 1}))
						take := map[recipes.Mode]func(context.Context, ...recipes.Option) <-chan result{
							recipes.Shared: c.rlock, recipes.Exclusive: c.lock,
						}
						l := w.won(take[held](bg))
						other := w.client("b").lock(bg)
						time.Sleep(soon)
						var late <-chan result
						w.unlockWith(l, func() { late = take[wanted](bg) })
						l = w.won(other)
						w.waits(late)
						w.unlock(l)
						w.unlock(w.won(late))
					})
				})
			}
		}
	}
}

func TestAReaderThatArrivesDuringTheEndOfTheLastTurnKeepsNoClientOut(t *testing.T) {
	t.Run("a reader elsewhere holds beside it", func(t *testing.T) {
		inWorld(t, func(w *world) {
			c := w.client("a", retention())
			l := w.won(c.lock(bg))
			elsewhere := w.client("b").rlock(bg)
			time.Sleep(soon)
			var late <-chan result
			w.unlockWith(l, func() { late = c.rlock(bg) })
			w.unlock(w.won(late), w.won(elsewhere))
		})
	})
	t.Run("a writer elsewhere waits for no further reader", func(t *testing.T) {
		inWorld(t, func(w *world) {
			c := w.client("a", retention())
			l := w.won(c.lock(bg))
			writer := w.client("b").lock(bg)
			time.Sleep(soon)
			var late <-chan result
			w.unlockWith(l, func() { late = c.rlock(bg) })
			last := c.rlock(bg)
			w.waits(last)
			w.unlock(w.won(late))
			w.unlock(w.won(writer))
			w.unlock(w.won(last))
		})
	})
}

func TestAWaiterIsNotGrantedTheLockDuringTheEndOfTheLastTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithRetention(recipes.Retention{Turns: 1}))
		l := w.won(c.lock(bg))
		local := c.lock(bg)
		var other <-chan result
		w.unlockWith(l, func() { other = w.client("b").lock(bg) })
		l = w.won(other)
		w.waits(local)
		w.unlock(l)
		w.unlock(w.won(local))
	})
}

func TestAHookThatPanicsInUnlockDoesNotStopTheNextWaiter(t *testing.T) {
	boom := func() { panic("x") }
	for name, trace := range map[string]*recipes.Trace{
		"released": {Released: func(context.Context, recipes.ReleasedInfo) { boom() }},
		"lost":     {Lost: func(context.Context, recipes.LostInfo) { boom() }},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.client("a", retention())
				traced := w.won(c.rlock(bg, recipes.WithTrace(trace)))
				waiting := c.lock(bg)
				w.waits(waiting)
				if trace.Lost != nil {
					w.store.Faults().RemoveNode("q", traced.Node())
				}
				assert.PanicsWithValue(w, "x", func() { _ = traced.Unlock() })
				w.unlock(w.won(waiting))
			})
		})
	}
	t.Run("downgraded", func(t *testing.T) {
		inWorld(t, func(w *world) {
			c := w.client("a", retention())
			trace := recipes.WithTrace(&recipes.Trace{Downgraded: func(context.Context, recipes.DowngradedInfo) { boom() }})
			l := w.won(c.lock(bg, trace))
			inner := w.won(c.rlock(l.Context(bg)))
			waiting := c.rlock(bg)
			assert.PanicsWithValue(w, "x", func() { _ = l.Unlock() })
			w.unlock(w.won(waiting), inner)
		})
	})
}

// endsWhenAsked ends during the second call of Err, which is after the grant
// but before Lock returns.
type endsWhenAsked struct {
	context.Context
	cancel context.CancelFunc
	asked  atomic.Int64
}

func (c *endsWhenAsked) Err() error {
	if c.asked.Add(1) == 2 {
		c.cancel()
	}
	return c.Context.Err()
}

func TestACancelledCallDoesNotWaitForTheStoreForLong(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		w.unlock(w.won(c.lock(bg)))
		l := w.won(c.lock(bg))
		ctx := &endsWhenAsked{}
		ctx.Context, ctx.cancel = context.WithCancel(bg)
		cancelled := c.lock(ctx)
		other := w.client("b").lock(bg)
		synctest.Wait() // until c knows that another client waits
		heal := w.store.Faults().CutOff(c.session())
		began := time.Now()
		w.unlock(l)
		r := <-cancelled
		require.ErrorIs(w, r.err, context.Canceled)
		assert.Equal(w, 50*time.Millisecond, time.Since(began))
		heal()
		time.Sleep(soon)
		w.unlock(w.won(other))
	})
}

func TestALockThatACancelledWaiterWasGivenGoesToTheNext(t *testing.T) {
	// The waiter may notice the cancellation or the grant first, so repeat
	// often.
	for range 50 {
		inWorld(t, func(w *world) {
			var held *recipes.Lock
			ctx, cancel := context.WithCancel(bg)
			c := w.client("a", retention(), whileWaiting(func() {
				cancel()
				assert.NoError(w, held.Unlock())
			}))
			held = w.won(c.lock(bg))
			cancelled := c.lock(ctx)
			time.Sleep(10 * time.Second)
			require.ErrorIs(w, w.failed(cancelled), context.Canceled)
			w.unlock(w.won(c.lock(bg)))
		})
	}
}

func TestOneLockIsExemptFromTheRetentionOfItsClient(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", retention())
		exempt := recipes.WithoutRetention()
		for range 2 {
			l := w.won(c.lock(bg, exempt))
			assert.Zero(w, c.Cohorts())
			w.unlock(l)
			assert.Empty(w, w.names(), "Unlock removes the node")
		}
		w.unlock(w.won(c.lock(bg)))
		assert.Len(w, w.names(), 1, "the client keeps the node of a lock without this option")
		l := w.won(c.lock(bg, exempt))
		retained := c.lock(bg)
		w.waits(retained)
		w.unlock(l)
		w.unlock(w.won(retained))
		l = w.won(c.lock(bg, exempt, retention()))
		w.unlock(l)
		assert.Equal(w, []string{l.Node()}, w.names(), "of two options the last one counts")
	})
}

// When a writer gives up, a reader of the same client must take over its
// position in the queue, ahead of another client's writer.
func TestAWriterThatGivesUpLeavesItsPositionToAReader(t *testing.T) {
	for _, wait := range []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchQueue(), recipes.Poll(time.Millisecond)} {
		t.Run(wait.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				held := w.won(w.client("h").lock(bg))
				a := w.client("a", retention(), recipes.WithWait(wait))
				ctx, cancel := context.WithCancel(bg)
				writer, reader := a.lock(ctx), a.rlock(bg)
				behind := w.client("b").lock(bg)
				cancel()
				require.ErrorIs(w, w.failed(writer), context.Canceled)
				synctest.Wait()
				assert.Equal(w, []string{"h-W-0000000000", "a-R-0000000001", "b-W-0000000002"}, w.names())
				another := a.rlock(bg)
				beside := w.client("c").rlock(bg)
				w.unlock(held)
				time.Sleep(2 * time.Millisecond)
				l := w.won(reader)
				assert.EqualValues(w, 2, l.Token())
				w.unlock(l, w.won(another))
				w.waits(beside)
				w.unlock(w.won(behind))
				w.unlock(w.won(beside))
			})
		})
	}
}

func TestAReaderBehindAWriterThatGivesUpJoinsOtherReaders(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").rlock(bg))
		a := w.client("a", retention())
		ctx, cancel := context.WithCancel(bg)
		writer, reader := a.lock(ctx), a.rlock(bg)
		cancel()
		require.ErrorIs(w, w.failed(writer), context.Canceled)
		w.unlock(w.won(reader), held)
	})
}

// If the client does not know whether the rename took effect, the reader must
// contend with a new node.
func TestAReaderGetsTheLockIfTheNodeOfTheWriterIsNotKnownToBeRenamed(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		store := faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			return faults.Fault{Lose: r.Op == faults.OpReplace && r.Stage == faults.StageReply}
		})
		a := w.clientOf(store, "a", retention())
		ctx, cancel := context.WithCancel(bg)
		writer, reader := a.lock(ctx), a.rlock(bg)
		cancel()
		require.ErrorIs(w, w.failed(writer), context.Canceled)
		w.unlock(held)
		w.unlock(w.won(reader))
	})
}

// A call that gives up must remove its node before it returns. Otherwise a
// later TryLock would fail although the lock is free.
func TestACallThatGivesUpIsInTheWayOfNoTryLock(t *testing.T) {
	for name, try := range map[string]struct {
		client string
		after  time.Duration
	}{
		"of the same client, meanwhile": {"a", time.Second + time.Millisecond},
		"of the same client, then":      {"a", time.Second + 10*time.Millisecond},
		"of another client, then":       {"b", time.Second + 10*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				held := w.won(w.client("h").lock(bg))
				clients := map[string]*client{"a": w.client("a", retention()), "b": w.client("b")}
				w.store.Faults().Delay(clients["a"].session(), 10*time.Millisecond)
				began := time.Now()
				gaveUp := clients["a"].lock(bg, recipes.WithTimeout(time.Second))
				if try.after > time.Second+time.Millisecond {
					require.ErrorIs(w, (<-gaveUp).err, recipes.ErrTimeout)
					assert.Equal(w, try.after, time.Since(began))
				} else {
					time.Sleep(try.after)
				}
				w.unlock(held)
				l, err := clients[try.client].RWMutex("q").TryLock(bg)
				require.NoError(w, err)
				w.unlock(l)
			})
		})
	}
}
