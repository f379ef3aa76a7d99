package endtoend_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

func TestTenThousandTimedOutWaitsLeaveNothingInStoreOrMemory(t *testing.T) {
	const enough, warmUp = 10_000, 2000
	w := newFixture(t)
	c := w.clients(2, "")
	holder := w.lock(c[0]).granted()
	watches := w.server.Watches()
	w.watched(watches, 1) // 1: the holder's own watch
	began := time.Now()
	waited, timeout := 0, 500*time.Millisecond
	goOn := func(total int) {
		for batch := 0; waited < total; batch++ {
			require.Less(t, time.Since(began), 5*time.Minute, "only %d have waited", waited)
			n := w.timedOut(c[1], batch%2 == 0, timeout)
			if waited += n; n < timedOutCalls/2 {
				timeout *= 2 // too few calls created a node
			}
		}
		w.listed("q", holder.Node())
		// One watch of the holder's session and one of the waiters' may remain.
		w.eventually(func() bool { return w.server.Watches() <= watches+2 },
			func() string { return fmt.Sprintf("%d watches", w.server.Watches()-watches) })
	}
	goOn(warmUp)
	startManyGoroutines()
	before := heap()
	goOn(enough)
	// The heap shrinks only after the client has removed the last node in
	// the background.
	var after uint64
	w.eventually(func() bool { after = heap(); return after < before+1<<19 },
		func() string { return fmt.Sprintf("heap before %d, after %d bytes", before, after) })
	t.Logf("%d waits in the queue in %v, heap before %d, after %d bytes", waited, time.Since(began), before, after)
	w.unlock(holder)
	w.watched(watches, 0)
}

// startManyGoroutines allocates goroutine descriptors, which are never freed
// and would look like a leak.
func startManyGoroutines() {
	var all sync.WaitGroup
	end := make(chan struct{})
	for range 20 * timedOutCalls {
		all.Go(func() { <-end })
	}
	close(end)
	all.Wait()
}

const timedOutCalls = 500

// timedOut makes timedOutCalls calls, and returns how many had a node before
// they timed out.
func (w *fixture) timedOut(c *dlock.Client, onlyReaders bool, timeout time.Duration) int {
	w.Helper()
	var all sync.WaitGroup
	var waited atomic.Int32
	for i := range timedOutCalls {
		all.Go(func() {
			var once sync.Once
			waiting := func(context.Context, recipes.WaitingInfo) { once.Do(func() { waited.Add(1) }) }
			m := c.RWMutex("q", dlock.WithTimeout(timeout), dlock.WithTrace(&recipes.Trace{Waiting: waiting}))
			mode := dlock.Exclusive
			if onlyReaders || i%2 == 0 {
				mode = dlock.Shared
			}
			_, err := entering(m, mode)(context.Background())
			assert.ErrorIs(w, err, dlock.ErrTimeout)
		})
	}
	all.Wait()
	return int(waited.Load())
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The driver itself may keep up to 16 idle goroutines.
func TestAWaiterNeedsNoGoroutineButItsCallers(t *testing.T) {
	const n, spare = 1000, 16 + 4
	w := newFixture(t)
	c := w.clients(2, "")
	holder := w.lock(c[0]).granted()
	watches := w.server.Watches()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			_, err := c[1].RWMutex("q").RLock(ctx)
			assert.ErrorIs(w, err, context.Canceled)
		})
	}
	more := func() int { return runtime.NumGoroutine() - before }
	w.eventually(func() bool { return w.server.Watches()-watches >= n+1 && more() <= n+spare },
		func() string {
			return fmt.Sprintf("%d watches, %d goroutines more", w.server.Watches()-watches, more())
		})
	cancel()
	all.Wait()
	w.listed("q", holder.Node())
	w.unlock(holder)
	w.eventually(func() bool { return more() <= spare }, func() string { return fmt.Sprintf("%d goroutines more", more()) })
}
