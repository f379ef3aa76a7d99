package endtoend_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

func TestACancelledWaiterLeavesNoNode(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	holder := w.lock(c[0]).granted()
	for _, mode := range []dlock.Mode{dlock.Exclusive, dlock.Shared} {
		k := w.contend(c[1], "q", mode)
		k.waitsBehind(holder.Node())
		k.cancel()
		require.ErrorIs(t, k.failed(), context.Canceled)
		w.listed("q", holder.Node())
	}
	w.unlock(holder)
}

func TestATimedOutWaiterLeavesNoNodeAndNamesItsPredecessor(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	holder := w.lock(c[0]).granted()
	// The timeout is long enough for a waiter to set its watches.
	k := w.contend(c[1], "q", dlock.Exclusive, dlock.WithTimeout(1500*time.Millisecond))
	err := k.failed()
	require.ErrorIs(t, err, dlock.ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, "dlock: q: timed out after 1.5s: held by "+holder.Node()+", 1 ahead")
	w.listed("q", holder.Node())
	w.unlock(holder)
}

func TestTenThousandTimedOutWaitsLeaveNothingInStoreOrMemory(t *testing.T) {
	const enough, warmUp = 10_000, 2000
	w := newFixture(t)
	c := w.clients(2)
	holder := w.lock(c[0]).granted()
	watches := w.server.Watches()
	w.watched(watches, 1) // the holder's own watch; all others belong to waiters
	began := time.Now()
	waited, timeout := 0, 500*time.Millisecond
	goOn := func(total int) {
		for batch := 0; waited < total; batch++ {
			require.Less(t, time.Since(began), 5*time.Minute, "only %d have waited", waited)
			n := w.timedOut(c[1], batch%2 == 0, timeout)
			if waited += n; n < timedOutCalls/2 {
				timeout *= 2 // too few calls had time to create a node
			}
		}
		w.listed("q", holder.Node())
		// Two watches may remain on the holder's node: one of the
		// holder's session and one of the waiters' session.
		w.eventually(func() bool { return w.server.Watches() <= watches+2 },
			func() string { return fmt.Sprintf("%d watches", w.server.Watches()-watches) })
	}
	goOn(warmUp)
	startManyGoroutines()
	before := heap()
	goOn(enough)
	require.GreaterOrEqual(t, waited, enough, "waits in the queue")
	// The heap shrinks only after the client has removed the last node in
	// the background.
	var after uint64
	w.eventually(func() bool { after = heap(); return after < before+1<<19 },
		func() string { return fmt.Sprintf("heap before %d, after %d bytes", before, after) })
	t.Logf("%d waits in the queue in %v, heap before %d, after %d bytes", waited, time.Since(began), before, after)
	w.unlock(holder)
	w.watched(watches, 0)
}

// startManyGoroutines makes the runtime allocate all goroutine descriptors that
// the test will need. The runtime never frees them, so later allocations would
// look like a leak.
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

// timedOut makes many calls time out behind a holder, and returns how many of
// them had a node in the queue. Unless onlyReaders is set, half of them are
// writers, which also wait for each other.
func (w *fixture) timedOut(c *dlock.Client, onlyReaders bool, timeout time.Duration) int {
	w.Helper()
	var (
		all      sync.WaitGroup
		failures errs
		waited   atomic.Int32
	)
	for i := range timedOutCalls {
		all.Go(func() {
			var once sync.Once
			waiting := func(context.Context, recipes.WaitingInfo) { once.Do(func() { waited.Add(1) }) }
			m := c.RWMutex("q", dlock.WithTimeout(timeout), dlock.WithTrace(&recipes.Trace{Waiting: waiting}))
			enter := m.Lock
			if onlyReaders || i%2 == 0 {
				enter = m.RLock
			}
			if l, err := enter(context.Background()); l != nil || !isTimeout(err) {
				failures.add("lock %v, error %w", l, err)
			}
		})
	}
	all.Wait()
	failures.none(w)
	return int(waited.Load())
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestWhenAWaiterInTheMiddleGivesUpNoWaiterIsGrantedEarly(t *testing.T) {
	for _, mode := range []dlock.Mode{dlock.Exclusive, dlock.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			w := newFixture(t)
			c := w.clients(3)
			holder := w.lock(c[0]).granted()
			middle := w.lock(c[1])
			middle.waitsBehind(holder.Node())
			last := w.contend(c[2], "q", mode)
			last.waitsBehind(middle.node())
			middle.cancel()
			middle.failed()
			last.waitsBehind(holder.Node())
			require.NoError(t, holder.Err())
			w.unlock(holder)
			w.unlock(last.granted())
		})
	}
}

func TestWhenAQueuedWriterGivesUpTheReadersBehindItJoinTheHolders(t *testing.T) {
	w := newFixture(t)
	c := w.clients(3)
	holder := w.rlock(c[0]).granted()
	writer := w.lock(c[1])
	writer.waitsBehind(holder.Node())
	reader := w.rlock(c[2])
	reader.waitsBehind(writer.node())
	writer.cancel()
	w.unlock(reader.granted())
	require.NoError(t, holder.Err())
	w.unlock(holder)
}

func TestWhenTheProcessOfAWaiterInTheMiddleDiesNoWaiterIsGrantedEarly(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	c := w.clients(2)
	holder := w.lock(c[0]).granted()
	middle := w.child(3 * time.Second)
	node := middle.awaitLine("waiting")
	last := w.lock(c[1])
	last.waitsBehind(node)
	middle.kill()
	last.waitsBehind(holder.Node())
	require.NoError(t, holder.Err())
	w.listed("q", holder.Node(), last.node())
	w.unlock(holder)
	w.unlock(last.granted())
}

func TestWhenTheSessionOfAWaiterInTheMiddleEndsNoWaiterIsGrantedEarly(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	holder := w.lock(c[0]).granted()
	gone, _ := w.proxied("gone")
	middle := w.lock(gone)
	middle.waitsBehind(holder.Node())
	last := w.lock(c[1])
	last.waitsBehind(middle.node())
	require.NoError(t, gone.Close())
	require.ErrorIs(t, middle.failed(), dlock.ErrClosed)
	last.waitsBehind(holder.Node())
	w.unlock(holder)
	w.unlock(last.granted())
}

// A waiter must need no goroutine but its caller's. The driver itself may keep
// up to 16 idle goroutines.
func TestAWaiterNeedsNoGoroutineButItsCallers(t *testing.T) {
	const n, spare = 1000, 16 + 4
	w := newFixture(t)
	c := w.clients(2)
	holder := w.lock(c[0]).granted()
	watches := w.server.Watches()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var failures errs
	for range n {
		all.Go(func() {
			if l, err := c[1].RWMutex("q").RLock(ctx); l != nil || err == nil {
				failures.add("lock %v, error %v", l, err)
			}
		})
	}
	w.eventually(func() bool { return w.server.Watches()-watches >= n+1 && runtime.NumGoroutine() <= before+n+spare },
		func() string {
			return fmt.Sprintf("%d watches, %d goroutines more than before", w.server.Watches()-watches, runtime.NumGoroutine()-before)
		})
	t.Logf("%d more goroutines for %d waiters", runtime.NumGoroutine()-before, n)
	require.GreaterOrEqual(t, runtime.NumGoroutine(), before+n-spare) // goroutines counted before may have ended
	cancel()
	all.Wait()
	failures.none(t)
	w.listed("q", holder.Node())
	w.unlock(holder)
	w.watched(watches, 0)
	w.eventually(func() bool { return runtime.NumGoroutine() <= before+spare },
		func() string { return fmt.Sprintf("%d goroutines more than before", runtime.NumGoroutine()-before) })
}
