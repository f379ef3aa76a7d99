package recipes_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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

// Each of bothOrders removes a waiter's own node and releases its predecessor.
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

// loseNode checks that a waiter whose node is removed gets the lock with
// another.
func loseNode(w *world, mode recipes.Mode, when string, both func(w *world, own string, held *recipes.Lock)) {
	var own string
	held := w.won(w.client("h").lock(bg))
	c := w.clientOf(w.intercepted(when, func(p driver.Place) {
		if own == "" {
			own = p.Name
			both(w, own, held)
		}
	}), "a")
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

// A waiter without a node must not be granted the lock, even before it notices.
func TestAReleaseThatTheEndOfTheWatchFollowsGrantsNothing(t *testing.T) {
	for name, both := range bothOrders {
		for _, mode := range []recipes.Mode{recipes.Exclusive, recipes.Shared} {
			for _, when := range []string{"before watch", "after watch", "after create"} {
				t.Run(fmt.Sprint(name, ", ", mode, ", ", when), func(t *testing.T) {
					inWorld(t, func(w *world) {
						loseNode(w, mode, when, func(w *world, own string, held *recipes.Lock) {
							both(w, own, held)
							if when == "after create" {
								synctest.Wait()
							}
						})
					})
				})
			}
		}
	}
}

// A release before the watch shows only in a list of the queue.
func TestAReleaseThatMeetsTheWatch(t *testing.T) {
	for when, lists := range map[string]int{"before watch": 1, "after watch": 0, "after create": 0} {
		t.Run(when, func(t *testing.T) {
			inWorld(t, func(w *world) {
				held := w.won(w.client("h").lock(bg))
				c := w.clientOf(w.intercepted(when, func(driver.Place) {
					if held.Err() == nil {
						w.unlock(held)
					}
				}), "a")
				before := w.store.Stats()
				w.unlock(w.won(c.lock(bg)))
				assert.EqualValues(w, lists, w.spent(before)[faults.OpList])
			})
		})
	}
}

// interceptedSession calls a function after Create, before Watch or after
// Watch, as when says.
type interceptedSession struct {
	driver.Session
	when string
	at   func(p driver.Place)
}

func (w *world) intercepted(when string, at func(p driver.Place)) driver.Connector {
	return wrapped(w.store, func(s driver.Session) driver.Session { return interceptedSession{s, when, at} })
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

// Without the cause of a deletion, only a list shows whether the lock is free.
func TestADriverThatIgnoresTheCauseCostsALookAtTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		var queue []<-chan result
		held := w.won(w.clientOf(wrapped(w.store, incurious), "h").lock(bg))
		for i := range 20 {
			queue = append(queue, w.clientOf(wrapped(w.store, incurious), fmt.Sprint("c", i)).lock(bg))
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

type incuriousSession struct{ driver.Session }

func incurious(s driver.Session) driver.Session { return incuriousSession{s} }

func (s incuriousSession) Delete(ctx context.Context, queue string, p driver.Place, _ driver.Cause) error {
	return s.Session.Delete(ctx, queue, p, driver.Changed)
}
