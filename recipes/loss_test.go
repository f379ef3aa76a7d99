package recipes_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
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

var losses = map[string]func(w *world, c *client, name string){
	"its session expires":  func(w *world, c *client, _ string) { w.store.Faults().Expire(c.session()) },
	"its node is removed":  func(w *world, _ *client, name string) { w.store.Faults().RemoveQueue(name) },
	"its client is closed": func(w *world, c *client, _ string) { assert.NoError(w, c.Close()) },
}

func TestALossShowsInEveryLock(t *testing.T) {
	lossesAndPause := maps.Clone(losses)
	lossesAndPause["its process pauses"] = func(w *world, c *client, _ string) {
		w.store.Faults().Pause(c.session(), time.Hour)
	}
	for how, lose := range lossesAndPause {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var log safeBuffer
				var told []recipes.LostInfo
				c := w.client("a", logTo(&log), recipes.WithTrace(&recipes.Trace{
					Lost: func(_ context.Context, i recipes.LostInfo) { told = append(told, i) },
				}))
				outer := w.won(c.lock(bg))
				inner, left := w.won(c.rlock(outer.Context(bg))), w.won(c.rlock(outer.Context(bg)))
				w.unlock(left)
				ctx := outer.Context(bg)
				time.Sleep(3 * time.Second)
				lose(w, c, "q")

				for _, l := range []*recipes.Lock{outer, inner} {
					lost := l.Lost()
					if how != "its node is removed" {
						require.ErrorIs(w, l.Err(), recipes.ErrLost, "Err need not be told")
					}
					<-lost
					require.ErrorIs(w, l.Err(), recipes.ErrLost)
					require.ErrorIs(w, l.Downgrade(bg), recipes.ErrLost)
				}
				require.ErrorIs(w, ctx.Err(), context.Canceled)
				require.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)
				for range 2 {
					for _, inside := range []context.Context{ctx, context.WithoutCancel(ctx)} {
						require.ErrorIs(w, w.failed(c.lock(inside)), recipes.ErrLost)
						require.ErrorIs(w, w.failed(c.rlock(inside)), recipes.ErrLost)
					}
					for _, l := range []*recipes.Lock{outer, inner} {
						require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
						require.ErrorIs(w, l.Err(), recipes.ErrLost)
						require.ErrorIs(w, l.Err(), recipes.ErrNotHeld)
					}
				}
				assert.False(w, isClosed(left.Lost()), "this Lock was unlocked before the loss")
				require.ErrorIs(w, left.Err(), recipes.ErrNotHeld)
				require.ErrorIs(w, left.Unlock(), recipes.ErrNotHeld)

				synctest.Wait()
				require.Len(w, told, 1)
				require.ErrorIs(w, told[0].Err, recipes.ErrLost)
				assert.Equal(w, how == "its client is closed", errors.Is(told[0].Err, recipes.ErrClosed))
				assert.Equal(w, how == "its node is removed" || how == "its client is closed", !errors.Is(told[0].Err, driver.ErrSessionEnded))
				reason := map[string]string{"its node is removed": "removed", "its client is closed": "closed"}[how]
				assert.Equal(w, cmp.Or(reason, "session_ended"), told[0].Reason())
				told[0].Held, told[0].Err = told[0].Held.Truncate(time.Hour), nil
				assert.Equal(w, recipes.LostInfo{
					Recipe: "lock", Lock: "q", Node: outer.Node(), Mode: recipes.Exclusive, Granted: recipes.Exclusive,
				}, told[0])
				assert.Contains(w, log.String(), `level=WARN msg="dlock: lock lost" lock=q node=a-W-0000000000 error=`)
			})
		})
	}
}

// hookedParent is a parent context that calls unregister when a child detaches.
type hookedParent struct {
	context.Context
	done       chan struct{}
	unregister func()
}

func (p hookedParent) Done() <-chan struct{} { return p.done }

func (p hookedParent) AfterFunc(func()) (stop func() bool) {
	return func() bool { p.unregister(); return true }
}

// Err, Context and Unlock must work while the goroutine that noticed the loss
// is stuck.
func TestUnlockCancelsTheContextsOfALockThatIsBeingLost(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		open, first := make(chan struct{}), new(atomic.Bool)
		defer close(open)
		parent := hookedParent{bg, make(chan struct{}), func() {
			if !first.Swap(true) {
				<-open
			}
		}}
		ctx := l.Context(parent)
		w.store.Faults().Expire(c.session())
		synctest.Wait()
		require.NoError(w, ctx.Err(), "the goroutine is held up")
		require.ErrorIs(w, context.Cause(l.Context(parent)), recipes.ErrLost)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.ErrorIs(w, ctx.Err(), context.Canceled)
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)
	})
}

func TestWaitingOutlivesTheSession(t *testing.T) {
	for _, way := range []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchQueue(), recipes.Poll(time.Hour)} {
		t.Run(way.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.client("a"), w.client("b")
				held := w.won(a.lock(bg))
				waiting := b.lock(bg, recipes.WithWait(way))
				w.store.Faults().Expire(b.session())
				time.Sleep(soon)
				w.waits(waiting)
				assert.Equal(w, []string{"a-W-0000000000", "b-W-0000000002"}, w.names())
				w.unlock(held)
				if way == recipes.Poll(time.Hour) {
					time.Sleep(2 * time.Hour)
				}
				l := w.won(waiting)
				require.NoError(w, l.Err())
				w.unlock(l)
			})
		})
	}
}

// Any request may learn that the session has ended before the next heartbeat
// does.
func TestTheFirstAnswerOfAStoreThatEndedTheSessionIsALoss(t *testing.T) {
	unlock := (*recipes.Lock).Unlock
	for name, c := range map[string]struct {
		take func(*client) <-chan result
		call func(*recipes.Lock) error
	}{
		"unlock":           {func(c *client) <-chan result { return c.lock(bg) }, unlock},
		"unlock of units":  {func(c *client) <-chan result { return c.acquire(bg, 1, 1) }, unlock},
		"unlock of shared": {func(c *client) <-chan result { return c.rlock(bg) }, unlock},
		"set value":        {func(c *client) <-chan result { return c.lock(bg) }, func(l *recipes.Lock) error { return l.SetValue(bg, nil) }},
		"downgrade":        {func(c *client) <-chan result { return c.lock(bg) }, func(l *recipes.Lock) error { return l.Downgrade(bg) }},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var lost []recipes.Mode
				a := w.client("a", recipes.WithTrace(&recipes.Trace{
					Lost:     func(_ context.Context, i recipes.LostInfo) { lost = append(lost, i.Mode) },
					Released: func(context.Context, recipes.ReleasedInfo) { w.Error("nothing was released") },
				}))
				l := w.won(c.take(a))
				w.store.Faults().Drop(a.session())
				next := w.won(c.take(w.client("b")))
				err := c.call(l)
				require.ErrorIs(w, err, recipes.ErrLost)
				require.NotErrorIs(w, err, recipes.ErrUnlock)
				require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
				synctest.Wait()
				require.Equal(w, []recipes.Mode{l.Mode()}, lost)
				w.unlock(next)
			})
		})
	}
}

func TestANodeThatVanishesAgainAndAgainMakesNoBusyLoop(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.clientOf(wrapped(w.store, func(s driver.Session) driver.Session { return blindSession{s} }), "a")
		held := w.won(w.client("h").lock(bg))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		before := w.store.Stats().Requests[faults.OpCreate]
		_, err := c.RWMutex("q").Lock(ctx)
		require.ErrorIs(w, err, recipes.ErrTimeout)
		assert.Less(w, w.store.Stats().Requests[faults.OpCreate]-before, int64(100))
		w.unlock(held)
		w.store.Faults().RemoveQueue("q")
	})
}

type blindSession struct{ driver.Session }

func (blindSession) List(context.Context, string) ([]driver.Node, error) { return nil, nil }

func TestAnotherSessionsNodeOfTheSameNameIsNotTakenForTheOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c, d := w.client("h"), w.client("h"), w.client("h"), w.client("h")
		l := w.won(a.lock(bg))
		waiting := b.lock(bg)
		require.Equal(w, []string{"h-W-0000000000", "h-W-0000000001"}, w.names())

		// The clients a and b miss that the queue is removed and its names
		// reused.
		healA, healB := w.store.Faults().CutOff(a.session()), w.store.Faults().CutOff(b.session())
		w.store.Faults().RemoveQueue("q")
		l2, w2 := w.won(c.lock(bg)), d.lock(bg)
		w.waits(w2)
		require.Equal(w, []string{"h-W-0000000000", "h-W-0000000001"}, w.names())
		healA()
		healB()

		time.Sleep(soon)
		require.ErrorIs(w, l.Err(), recipes.ErrLost)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.NoError(w, l2.Err())
		w.waits(waiting)
		w.waits(w2)
		w.unlock(l2)
		second := w.won(w2)
		w.waits(waiting)
		w.unlock(second)
		w.unlock(w.won(waiting))
	})
}

// A caller woken by Lost may use the context in its next call.
func TestContextsEndBeforeALossIsShown(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		lost := l.Lost()
		var ctx context.Context
		early := 0
		ctx = l.Context(hookedParent{bg, make(chan struct{}), func() {
			select {
			case <-lost:
				if ctx.Err() == nil {
					early++
				}
			default:
			}
		}})
		w.store.Faults().Expire(c.session())
		<-lost
		require.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)
		require.Zero(w, early)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}

// A node that the waiter does not find would otherwise block all contenders.
func TestANodeThatIsNotListedIsRemovedAllTheSame(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("a").lock(bg))
		lists := 0
		c := w.clientOf(wrapped(w.placeOnly(), func(s driver.Session) driver.Session { return forgetfulSession{s, &lists} }), "b")
		waiting := c.lock(bg)
		w.waits(waiting)
		require.Len(w, w.names(), 2, "the holder's node, and the waiter's second node")
		w.unlock(held)
		w.unlock(w.won(waiting))
		assert.Empty(w, w.names())
	})
}

// forgetfulSession omits the last node of the first list with several nodes.
type forgetfulSession struct {
	driver.Session
	lists *int
}

func (s forgetfulSession) List(ctx context.Context, q string) ([]driver.Node, error) {
	nodes, err := s.Session.List(ctx, q)
	if len(nodes) > 1 {
		if *s.lists++; *s.lists == 1 {
			nodes = nodes[:len(nodes)-1]
		}
	}
	return nodes, err
}
