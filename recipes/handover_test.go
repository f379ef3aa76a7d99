package recipes_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

func (w *world) spent(before memdriver.Stats) map[faults.Op]int64 {
	w.Helper()
	synctest.Wait()
	spent := make(map[faults.Op]int64)
	for op, n := range w.store.Stats().Requests {
		if n -= before.Requests[op]; n != 0 && op != faults.OpHeartbeat {
			spent[op] = n
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
			assert.Equal(w, map[faults.Op]int64{faults.OpDelete: 1}, w.spent(before))
		}
		w.unlock(held)
	})
}

func TestReadersThatWaitedForAWriterAreGrantedTheLockWithoutARequest(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		var readers []<-chan result
		for i := range 3 {
			readers = append(readers, w.client(fmt.Sprint("r", i)).rlock(bg))
		}
		time.Sleep(soon)
		before := w.store.Stats()
		w.unlock(held)
		for _, r := range readers {
			defer w.unlock(w.won(r))
		}
		assert.Equal(w, map[faults.Op]int64{faults.OpDelete: 1}, w.spent(before))
	})
}

// Only the last of several readers passes the lock to a waiting writer. After
// an earlier Unlock, the writer must list the queue and continue to wait.
func TestReadersDoNotPassTheLockOn(t *testing.T) {
	inWorld(t, func(w *world) {
		first, second := w.won(w.client("r1").rlock(bg)), w.won(w.client("r2").rlock(bg))
		writer := w.client("w").lock(bg)
		before := w.store.Stats()
		w.unlock(second)
		w.waits(writer)
		assert.EqualValues(w, 1, w.spent(before)[faults.OpList])
		w.unlock(first)
		w.unlock(w.won(writer))
		assert.EqualValues(w, 2, w.spent(before)[faults.OpList])
	})
}

func TestADowngradedLockIsNotPassedOn(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		writer := w.client("w").lock(bg)
		require.NoError(w, held.Downgrade(bg))
		w.waits(writer)
		before := w.store.Stats()
		w.unlock(held)
		w.unlock(w.won(writer))
		assert.EqualValues(w, 1, w.spent(before)[faults.OpList], "the writer lists the queue once")
	})
}

func TestAWaiterThatGivesUpGrantsNothingToTheNext(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		ctx, cancel := context.WithCancel(bg)
		leaving := w.client("a").lock(ctx)
		writer := w.client("w").lock(bg)
		before := w.store.Stats()
		cancel()
		_ = w.failed(leaving)
		w.waits(writer)
		assert.EqualValues(w, 1, w.spent(before)[faults.OpList])
		w.unlock(held)
		w.unlock(w.won(writer))
	})
}

// bothOrders holds two functions that remove a waiter's own node and release
// its predecessor, each in a different order.
var bothOrders = map[string]func(w *world, own string, held *recipes.Lock){
	"removed first": func(w *world, own string, held *recipes.Lock) {
		w.store.Faults().RemoveNode("q", own)
		w.unlock(held)
	},
	"released first": func(w *world, own string, held *recipes.Lock) {
		w.unlock(held)
		w.store.Faults().RemoveNode("q", own)
	},
}

// A waiter whose own node was removed must not be granted the lock, even if its
// predecessor is released before it notices.
func TestAWaiterWithoutANodeIsNotGrantedTheLockByARelease(t *testing.T) {
	for name, both := range bothOrders {
		for _, mode := range []recipes.Mode{recipes.Exclusive, recipes.Shared} {
			for _, when := range []string{"before watch", "after watch", "after create"} {
				t.Run(fmt.Sprint(name, ", ", mode, ", ", when), func(t *testing.T) {
					inWorld(t, func(w *world) { loseNode(w, mode, when, both) })
				})
			}
		}
	}
}

// loseNode checks that a waiter whose node was removed gets the lock with a new
// node. The function both, from bothOrders, is called while it waits.
func loseNode(w *world, mode recipes.Mode, when string, both func(w *world, own string, held *recipes.Lock)) {
	var own string
	held := w.won(w.client("h").lock(bg))
	c := w.clientOf(intercepted{w.store, when, func(p driver.Place) {
		if own == "" {
			own = p.Name
			both(w, own, held)
		}
	}}, "a")
	m, granted := c.RWMutex("q"), make(chan result, 1)
	go func() {
		l, err := map[recipes.Mode]func(context.Context) (*recipes.Lock, error){recipes.Exclusive: m.Lock, recipes.Shared: m.RLock}[mode](bg)
		granted <- result{l, err}
	}()
	time.Sleep(time.Second)
	l := w.won(granted)
	assert.NotEmpty(w, own)
	assert.NotEqual(w, own, l.Node())
	assert.Equal(w, []string{l.Node()}, w.names())
	w.unlock(l)
}

// Both the release of the predecessor and the removal of the waiter's own node
// are reported before Create returns. The waiter must not be granted the lock.
func TestAReleaseThatTheEndOfTheWatchFollowsGrantsNothing(t *testing.T) {
	for name, both := range bothOrders {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				loseNode(w, recipes.Exclusive, "after create", func(w *world, own string, held *recipes.Lock) {
					both(w, own, held)
					synctest.Wait()
				})
			})
		})
	}
}

// If the holder unlocks before the waiter's watch is armed, the waiter has to
// list the queue to learn of it. Later, the watch alone must wake it.
func TestAReleaseThatMeetsTheWatch(t *testing.T) {
	for when, lists := range map[string]int{"before watch": 1, "after watch": 0, "after create": 0} {
		t.Run(when, func(t *testing.T) {
			inWorld(t, func(w *world) {
				held := w.won(w.client("h").lock(bg))
				c := w.clientOf(intercepted{w.store, when, func(driver.Place) {
					if held.Err() == nil {
						w.unlock(held)
					}
				}}, "a")
				before := w.store.Stats()
				w.unlock(w.won(c.lock(bg)))
				assert.EqualValues(w, lists, w.spent(before)[faults.OpList])
			})
		})
	}
}

// The waiter must not mistake a node for its predecessor just because it has
// the same name. Before the waiter arms its watch, the queue is recreated with
// another client's nodes, which have the same names.
func TestTheReleaseOfANodeOfTheSameNameGrantsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		held, others := w.won(w.client("h").lock(bg)), w.client("h")
		second := make(chan result, 1)
		var first *recipes.Lock
		c := w.clientOf(intercepted{w.store, "before watch", func(driver.Place) {
			if first != nil {
				return
			}
			w.store.Faults().RemoveQueue("q")
			first, _ = others.RWMutex("q").Lock(bg)
			go func() {
				l, err := others.RWMutex("q").Lock(bg)
				second <- result{l, err}
			}()
			time.Sleep(time.Millisecond) // until the second Lock has a node
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

// intercepted makes sessions that call a function before or after a request.
// The field when selects that point: "after create", "before watch" or "after
// watch".
type intercepted struct {
	driver.Connector
	when string
	at   func(p driver.Place)
}

type interceptedSession struct {
	driver.Session
	intercepted
}

func (c intercepted) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return interceptedSession{s, c}, nil
}

func (s interceptedSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if s.when != "after create" {
		n.Predecessor = nil
	}
	j, err := s.Session.Create(ctx, queue, n)
	s.now("after create", j.Place)
	return j, err
}

func (s interceptedSession) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	s.now("before watch", p)
	watch, err := s.Session.Watch(ctx, queue, p, ahead...)
	s.now("after watch", p)
	return watch, err
}

func (s interceptedSession) now(when string, p driver.Place) {
	if when == s.when {
		s.at(p)
	}
}

// If a driver does not pass on the cause of a Delete, a waiter cannot tell a
// release from other deletions. It must list the queue, but still only one
// waiter may be woken.
func TestADriverThatIgnoresTheCauseCostsALookAtTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		var queue []<-chan result
		held := w.won(w.clientOf(incurious{w.store}, "h").lock(bg))
		for i := range 20 {
			queue = append(queue, w.clientOf(incurious{w.store}, fmt.Sprint("c", i)).lock(bg))
		}
		time.Sleep(soon)
		for _, next := range queue {
			before := w.store.Stats()
			w.unlock(held)
			held = w.won(next)
			assert.Equal(w, map[faults.Op]int64{faults.OpDelete: 1, faults.OpList: 1}, w.spent(before))
		}
		w.unlock(held)
	})
}

// incurious makes sessions that drop the cause of each Delete, and pass
// driver.Changed instead.
type incurious struct{ driver.Connector }

type incuriousSession struct{ driver.Session }

func (c incurious) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return incuriousSession{s}, nil
}

func (s incuriousSession) Delete(ctx context.Context, queue string, p driver.Place, _ driver.Cause) error {
	return s.Session.Delete(ctx, queue, p, driver.Changed)
}
