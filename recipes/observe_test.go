package recipes_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

// queues records what Observe yields: hosts, "?" after those that wait, or "!"
// for errors.
type queues struct {
	mu   sync.Mutex
	seen []string
	last error
}

func (w *world) observingQueue(ctx context.Context, m *recipes.RWMutex) *queues {
	o := new(queues)
	go func() {
		for contenders, err := range m.Observe(ctx) {
			o.add(contenders, err)
		}
		o.add(nil, nil)
	}()
	return o
}

func (o *queues) add(contenders []recipes.Contender, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := ""
	for _, c := range contenders {
		line += c.Host
		if !c.Holds {
			line += "?"
		}
	}
	if err != nil {
		line, o.last = "!", err
	}
	o.seen = append(o.seen, line)
}

func (o *queues) saw() (seen []string) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, o.seen = o.seen, nil
	return seen
}

func TestObserveYieldsTheQueueAfterEachChangeForTwoRequests(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		ctx, cancel := context.WithCancel(bg)
		o := w.observingQueue(ctx, c.RWMutex("q"))
		assert.Equal(w, []string{""}, o.saw())
		first := w.won(a.rlock(bg))
		assert.Equal(w, []string{"a"}, o.saw())
		second := w.won(b.rlock(bg))
		assert.Equal(w, []string{"ab"}, o.saw())
		before := w.store.Stats()
		writer := c.lock(bg)
		assert.Equal(w, []string{"abc?"}, o.saw())
		assert.Equal(w, map[faults.Op]int64{faults.OpCreate: 1, faults.OpWatchQueue: 1, faults.OpList: 1}, w.spent(before))
		w.unlock(first, second)
		term := w.won(writer)
		saw := o.saw() // may begin with an earlier state
		assert.Equal(w, "c", saw[len(saw)-1])
		for contenders, err := range c.RWMutex("q").Observe(bg) {
			require.NoError(w, err)
			assert.False(w, contenders[0].HeldSince.IsZero())
			break
		}
		cancel()
		assert.Equal(w, []string{"!", ""}, o.saw(), "the error, and the end")
		require.ErrorIs(w, o.last, context.Canceled)
		assert.Zero(w, w.store.Stats().Watches)
		w.unlock(term)
	})
}

func TestObserveOfAQueueOutlastsOutages(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		lock := w.won(a.rlock(bg))
		o := w.observingQueue(bg, b.RWMutex("q"))
		assert.Equal(w, []string{"a"}, o.saw())
		for range 2 {
			up := w.store.Faults().Down()
			time.Sleep(10 * time.Minute)
			assert.Equal(w, []string{"!"}, o.saw(), "each outage is told once")
			require.ErrorIs(w, o.last, driver.ErrUnavailable)
			up()
			time.Sleep(time.Minute)
			assert.Equal(w, []string{""}, o.saw())
		}
		require.ErrorIs(w, lock.Unlock(), recipes.ErrLost)
		require.NoError(w, b.Close())
		assert.Equal(w, []string{"!", ""}, o.saw())
		require.ErrorIs(w, o.last, recipes.ErrClosed)
	})
}

func TestObserveOfAQueueMissesNoChangeBetweenItsRequests(t *testing.T) {
	for _, op := range []faults.Op{faults.OpWatchQueue, faults.OpList} {
		t.Run(op.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.client("a")
				var lock *recipes.Lock
				c := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
					if r.Op == op && r.Stage == faults.StageReply && r.Queue == "q" && lock == nil {
						lock, _ = a.RWMutex("q").RLock(bg)
					}
					return faults.Fault{}
				}), "c")
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				seen := w.observingQueue(ctx, c.RWMutex("q")).saw()
				assert.Equal(w, "a", seen[len(seen)-1])
				w.unlock(lock)
			})
		})
	}
}
