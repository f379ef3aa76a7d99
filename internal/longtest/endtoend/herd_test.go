package endtoend_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// waitingWriters is a held lock with many writers in its queue.
type waitingWriters struct {
	w      *fixture
	held   *dlock.Lock
	queued []*contender
}

// queueWriters makes n writers wait in the queue, one by one. clients(0) is the
// client of the holder, and clients(1) to clients(n) are those of the writers.
func (w *fixture) queueWriters(n int, clients func(i int) *dlock.Client, opts ...dlock.Option) *waitingWriters {
	w.Helper()
	l := &waitingWriters{w: w, held: w.lock(clients(0)).granted()}
	before := l.held.Node()
	for i := range n {
		k := w.contend(clients(1+i), "q", dlock.Exclusive, opts...)
		k.waitsBehind(before)
		l.queued = append(l.queued, k)
		before = k.node()
	}
	return l
}

// handOver passes the lock through all writers and returns the average number
// of requests per writer. If settle is set, it waits after each release until
// all waiters know of it.
func (l *waitingWriters) handOver(settle bool) float64 {
	l.w.Helper()
	before := l.w.server.Requests(l.w)
	for i, k := range l.queued {
		l.w.unlock(l.held)
		l.held = k.granted()
		if !settle {
			continue
		}
		for j, other := range l.queued[i+1:] {
			l.w.eventually(func() bool { return other.lastWait().Position == j+2 },
				func() string { return fmt.Sprintf("%s waits for %+v", other.node(), other.lastWait()) })
		}
	}
	spent := l.w.server.Requests(l.w) - before
	l.w.unlock(l.held)
	return float64(spent) / float64(len(l.queued))
}

// watched waits until the server has exactly before+more watches.
func (w *fixture) watched(before, more int64) {
	w.Helper()
	w.eventually(func() bool { return w.server.Watches() == before+more },
		func() string { return fmt.Sprintf("%d watches and not %d", w.server.Watches()-before, more) })
}

// maxPerHandOver limits the average number of requests per hand-over. A release
// is one request. The limit is a little higher, because on a busy machine some
// holders may start to watch their own nodes.
const maxPerHandOver = 1.3

func TestAReleaseWakesOneWriterHoweverManyWait(t *testing.T) {
	for _, n := range []int{10, 50} {
		t.Run(fmt.Sprintf("%d sessions", n), func(t *testing.T) {
			w := newFixture(t)
			clients := w.clients(n + 1)
			watches := w.server.Watches()
			l := w.queueWriters(n, func(i int) *dlock.Client { return clients[i] })
			// Each waiter watches its predecessor and its own node,
			// and the holder only its own.
			w.watched(watches, 2*int64(n)+1)
			spent := l.handOver(false)
			t.Logf("%.2f requests for each hand-over", spent)
			require.LessOrEqual(t, spent, maxPerHandOver)
			w.listed("q")
			w.watched(watches, 0)
		})
	}
	t.Run("50 of one session", func(t *testing.T) {
		w := newFixture(t)
		c := w.client("web1")
		watches := w.server.Watches()
		l := w.queueWriters(50, func(int) *dlock.Client { return c })
		w.watched(watches, 51) // each node's own
		spent := l.handOver(false)
		t.Logf("%.2f requests for each hand-over", spent)
		require.LessOrEqual(t, spent, maxPerHandOver)
		w.watched(watches, 0)
	})
}

// With WatchQueue, each release wakes every waiter, so its cost grows with the
// number of waiters. By default, a release wakes only one writer.
func TestWatchQueueWakesEveryWaiterWithEachRelease(t *testing.T) {
	const n = 20
	w := newFixture(t)
	clients := w.clients(n + 1)
	l := w.queueWriters(n, func(i int) *dlock.Client { return clients[i] }, dlock.WithWait(recipes.WatchQueue()))
	spent := l.handOver(true)
	t.Logf("%.2f requests for each hand-over", spent)
	// Each release is one Delete. After it, each remaining waiter sends two
	// requests, a watch and a list. On average (n-1)/2 waiters remain.
	require.GreaterOrEqual(t, spent, 1+float64(n+1)-2)
	w.listed("q")
}

func TestAReleaseByAWriterGrantsReadersWithoutARequest(t *testing.T) {
	const n = 20
	w := newFixture(t)
	clients := w.clients(n + 1)
	watches := w.server.Watches()
	writer := w.lock(clients[n]).granted()
	var readers []*contender
	for i := range n {
		k := w.rlock(clients[i])
		k.waitsBehind(writer.Node())
		readers = append(readers, k)
	}
	w.watched(watches, 2*n+1)
	before := w.server.Requests(t)
	w.unlock(writer)
	for _, k := range readers {
		k.granted()
	}
	spent := w.server.Requests(t) - before
	// Each reader may have sent one request, because a holder watches its
	// own node after 300 ms.
	require.LessOrEqual(t, spent, int64(n))
	for _, k := range readers {
		w.unlock(k.lock)
	}
}
