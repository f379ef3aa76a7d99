package recipes_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// spent returns the requests that the store has served since before, by kind, without those of
// none.
func (w *world) spent(before memdriver.Stats) map[memdriver.Op]int64 {
	w.Helper()
	synctest.Wait()
	spent := make(map[memdriver.Op]int64)
	for op, n := range w.store.Stats().Requests {
		if n -= before.Requests[op]; n != 0 && memdriver.Op(op) != memdriver.OpHeartbeat {
			spent[memdriver.Op(op)] = n
		}
	}
	return spent
}

func TestAHandOverTakesOneRequest(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		var queue []<-chan result
		for i := range 50 {
			queue = append(queue, w.client(fmt.Sprint("c", i)).lock(bg))
		}
		for _, next := range queue {
			before := w.store.Stats()
			w.unlock(held)
			held = w.won(next)
			assert.Equal(w, map[memdriver.Op]int64{memdriver.OpRelease: 1}, w.spent(before))
		}
		w.unlock(held)
	})
}

func TestReadersWhoHaveWaitedForAWriterEnterWithoutARequest(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		var readers []<-chan result
		for i := range 3 {
			readers = append(readers, w.client(fmt.Sprint("r", i)).rlock(bg))
		}
		time.Sleep(soon) // own nodes are watched by now
		before := w.store.Stats()
		w.unlock(held)
		for _, r := range readers {
			defer w.unlock(w.won(r))
		}
		assert.Equal(w, map[memdriver.Op]int64{memdriver.OpRelease: 1}, w.spent(before))
	})
}

// A writer behind readers is let in by the last of them, of whom there may have been others.
func TestReadersDoNotPassTheLockOn(t *testing.T) {
	inWorld(t, func(w *world) {
		first, second := w.won(w.client("r1").rlock(bg)), w.won(w.client("r2").rlock(bg))
		writer := w.client("w").lock(bg)
		before := w.store.Stats()
		w.unlock(second)
		w.waits(writer)
		assert.Zero(w, w.spent(before)[memdriver.OpRelease])
		w.unlock(first)
		w.unlock(w.won(writer))
	})
}

func TestADowngradedLockIsNotPassedOn(t *testing.T) {
	for name, connector := range map[string]func(*world) driver.Connector{
		"replaced": func(w *world) driver.Connector { return w.store },
		"in place": func(w *world) driver.Connector { return noReplacer{w.store} },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				held := w.won(w.clientOf(connector(w), "h").lock(bg))
				writer := w.client("w").lock(bg)
				before := w.store.Stats()
				require.NoError(w, held.Downgrade(bg))
				w.waits(writer)
				w.unlock(held)
				w.unlock(w.won(writer))
				assert.EqualValues(w, 1, w.spent(before)[memdriver.OpRelease], "the writer's own")
			})
		})
	}
}

// noReplacer makes sessions that can release nodes but not rename them.
type noReplacer struct{ driver.Connector }

type noReplacerSession struct {
	driver.Session
	driver.Releaser
}

func (c noReplacer) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return noReplacerSession{s, s.(driver.Releaser)}, nil
}

func TestWhoLeavesTheQueuePassesNothingOn(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		ctx, cancel := context.WithCancel(bg)
		leaving := w.client("a").lock(ctx)
		writer := w.client("w").lock(bg)
		before := w.store.Stats()
		cancel()
		_ = w.failed(leaving)
		w.waits(writer)
		assert.Zero(w, w.spent(before)[memdriver.OpRelease])
		w.unlock(held)
		w.unlock(w.won(writer))
	})
}

// Whose own node was removed before the release has no place to enter from. Both has happened
// by the time that the waiter can look.
func TestWhoHasNoNodeIsNotLetInByARelease(t *testing.T) {
	for name, mode := range map[string]recipes.Mode{"writer": recipes.Exclusive, "reader": recipes.Shared} {
		t.Run(name, func(t *testing.T) {
			for range 50 { // what is noticed first is a matter of chance
				for _, before := range []bool{false, true} {
					inWorld(t, func(w *world) { whoHasNoNode(w, mode, before) })
				}
			}
		})
	}
}

// whoHasNoNode takes the node away before it is watched, or after.
func whoHasNoNode(w *world, mode recipes.Mode, before bool) {
	var own string
	held := w.won(w.client("h").lock(bg))
	c := w.clientOf(intercepted{Connector: w.store, after: func(name string) {
		if (name == own) == before || held.Err() != nil {
			return
		}
		w.store.Faults().RemoveNode("q", own)
		w.unlock(held)
	}}, "a")
	queued := recipes.WithTrace(&recipes.Trace{Queued: func(_ context.Context, q recipes.QueuedInfo) {
		if own == "" {
			own = q.Place.Name
		}
	}})
	m, granted := c.RWMutex("q", queued), make(chan result, 1)
	go func() {
		l, err := map[recipes.Mode]func(context.Context) (*recipes.Lock, error){recipes.Exclusive: m.Lock, recipes.Shared: m.RLock}[mode](bg)
		granted <- result{l, err}
	}()
	time.Sleep(time.Second)
	l := w.won(granted)
	assert.NotEqual(w, own, l.Name())
	assert.Equal(w, []string{l.Name()}, w.names())
	w.unlock(l)
}

// whileWaiting has a function run by each call that has waited for 5 s. The call
// does not look at its context or its watches meanwhile.
func whileWaiting(run func()) recipes.Option {
	return recipes.WithLogger(slog.New(slowWaitHandler{slog.DiscardHandler, run}))
}

type slowWaitHandler struct {
	slog.Handler
	run func()
}

func (slowWaitHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h slowWaitHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "dlock: still waiting" {
		h.run()
	}
	return nil
}

func TestAWaiterThatFindsBothItsWatchesFiredLooksAtTheQueue(t *testing.T) {
	for range 50 { // which watch the waiter reads first is a matter of chance
		inWorld(t, func(w *world) {
			held := w.won(w.client("h").lock(bg))
			waiting := w.client("a", whileWaiting(func() {
				w.store.Faults().RemoveNode("q", "a-W-0000000001")
				assert.NoError(w, held.Unlock())
				synctest.Wait()
			})).lock(bg)
			time.Sleep(10 * time.Second)
			l := w.won(waiting)
			assert.Equal(w, "a-W-0000000002", l.Name())
			assert.Equal(w, []string{l.Name()}, w.names())
			w.unlock(l)
		})
	}
}

// A release that comes while the waiter still asks for one of its watches is old news when it has got them.
func TestAReleaseThatMeetsTheWatchesIsFollowedByALookAtTheQueue(t *testing.T) {
	for nth := range 2 {
		inWorld(t, func(w *world) {
			held, calls := w.won(w.client("h").lock(bg)), 0
			c := w.clientOf(intercepted{Connector: w.store, after: func(string) {
				if calls++; calls == nth+1 {
					w.unlock(held)
				}
			}}, "a")
			before := w.store.Stats()
			w.unlock(w.won(c.lock(bg)))
			assert.EqualValues(w, 2, w.spent(before)[memdriver.OpList])
		})
	}
}

// The same for a watch of the own node that has closed early and is asked for again after a while.
func TestAReleaseThatMeetsTheSecondWatchOfTheOwnNodeIsFollowedByALookAtTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		held, calls := w.won(w.client("h").lock(bg)), 0
		c := w.clientOf(intercepted{Connector: w.store, early: 1, after: func(string) {
			if calls++; calls == 4 { // the one in the way and the own node, twice
				w.unlock(held)
			}
		}}, "a")
		before := w.store.Stats()
		waiting := c.lock(bg)
		time.Sleep(400 * time.Millisecond) // the lock is not held for so long that its node is minded
		w.unlock(w.won(waiting))
		assert.EqualValues(w, 3, w.spent(before)[memdriver.OpList])
	})
}

// The queue is removed and made again with the same names, by others, just before the waiter arms
// one of its watches, of the own node or of the one in the way: that is of others' nodes then,
// and their release is none of its business.
func TestTheReleaseOfANamesakeLetsNobodyIn(t *testing.T) {
	for nth := range 2 {
		inWorld(t, func(w *world) {
			held, others := w.won(w.client("h").lock(bg)), w.client("h")
			calls, second := 0, make(chan result, 1)
			var first *recipes.Lock
			c := w.clientOf(intercepted{Connector: w.store, before: func(string) {
				if calls++; calls != nth+1 {
					return
				}
				w.store.Faults().RemoveQueue("q")
				first, _ = others.RWMutex("q").Lock(bg)
				go func() {
					l, err := others.RWMutex("q").Lock(bg)
					second <- result{l, err}
				}()
				time.Sleep(time.Millisecond) // it has queued
			}}, "h")
			waiting := make(chan result, 1)
			go func() {
				l, err := c.RWMutex("q").Lock(bg)
				waiting <- result{l, err}
			}()
			time.Sleep(time.Second)
			synctest.Wait()
			w.unlock(first)
			l := w.won(second)
			w.waits(waiting)
			w.unlock(l)
			w.unlock(w.won(waiting))
			require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
		})
	}
}

// intercepted calls functions before and after every Watch.
type intercepted struct {
	driver.Connector
	before, after func(name string)
	early         int // how many watches of places close at once
}

type interceptedSession struct {
	driver.Session
	releaser driver.Releaser
	intercepted
}

func (s *interceptedSession) Release(ctx context.Context, queue string, p driver.Place) error {
	return s.releaser.Release(ctx, queue, p)
}

func (s *interceptedSession) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	if s.early > 0 {
		s.early--
		return s.hooked(p.Name, func() (<-chan driver.Cause, error) {
			closed := make(chan driver.Cause)
			close(closed)
			return closed, nil
		})
	}
	return s.hooked(p.Name, func() (<-chan driver.Cause, error) { return s.releaser.WatchPlace(ctx, queue, p) })
}

func (c intercepted) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &interceptedSession{s, s.(driver.Releaser), c}, nil
}

func (s *interceptedSession) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	return s.hooked(name, func() (<-chan driver.Cause, error) { return s.Session.Watch(ctx, queue, name) })
}

func (s *interceptedSession) hooked(name string, arm func() (<-chan driver.Cause, error)) (<-chan driver.Cause, error) {
	if s.before != nil {
		s.before(name)
	}
	if s.after != nil {
		defer s.after(name)
	}
	return arm()
}

// A driver without Release costs a look at the queue for each hand-over, and wakes one writer.
func TestWithoutAReleaserTheQueueIsLookedAt(t *testing.T) {
	inWorld(t, func(w *world) {
		var queue []<-chan result
		held := w.won(w.clientOf(noReleaser{w.store}, "h").lock(bg))
		for i := range 20 {
			queue = append(queue, w.clientOf(noReleaser{w.store}, fmt.Sprint("c", i)).lock(bg))
		}
		time.Sleep(soon)
		for _, next := range queue {
			before := w.store.Stats()
			w.unlock(held)
			held = w.won(next)
			assert.Equal(w, map[memdriver.Op]int64{memdriver.OpDelete: 1, memdriver.OpList: 1}, w.spent(before))
		}
		w.unlock(held)
	})
}

// noReleaser makes sessions without any optional interface.
type noReleaser struct{ driver.Connector }

type bareSession struct{ driver.Session }

func (c noReleaser) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return bareSession{s}, nil
}

// onlySession makes sessions that have nothing beyond the contract, but whose
// watches may say Released.
type onlySession struct {
	driver.Connector
	lists *atomic.Int64
}

func (c onlySession) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	return countedLists{s, c.lists}, err
}

type countedLists struct {
	driver.Session
	lists *atomic.Int64
}

func (s countedLists) List(ctx context.Context, queue string) ([]driver.Node, error) {
	s.lists.Add(1)
	return s.Session.List(ctx, queue)
}

// Without WatchPlace a waiter cannot know that its own node stood when the
// holder released.
func TestAWaiterWhoseSessionIsNoReleaserListsHoweverLongItHasWaited(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.client("a")
		var lists atomic.Int64
		waiter := w.clientOf(onlySession{w.store, &lists}, "b")
		l := w.won(holder.lock(bg))
		got := waiter.lock(bg)
		time.Sleep(time.Second) // the waiter's own node is watched by now
		synctest.Wait()
		before := lists.Load()
		require.NoError(w, l.Unlock())
		require.NoError(w, w.won(got).Unlock())
		require.Equal(w, before+1, lists.Load())
	})
}
