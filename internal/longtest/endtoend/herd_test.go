package endtoend_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// line is a held lock and writers who wait for it.
type line struct {
	w      *world
	held   *dlock.Lock
	queued []*contender
}

// newLine queues n writers, in order, each of the client that clients returns for it.
func (w *world) newLine(n int, clients func(i int) *dlock.Client, opts ...dlock.Option) *line {
	w.Helper()
	l := &line{w: w, held: w.lock(clients(0)).granted()}
	before := l.held.Node()
	for i := range n {
		k := w.contend(clients(1+i), "q", dlock.Exclusive, opts...)
		k.waitsBehind(before)
		l.queued = append(l.queued, k)
		before = k.node()
	}
	return l
}

// handOver lets one after the other in and returns how many requests that took for each. With settle
// everybody who still waits has to notice each hand-over before the next one.
func (l *line) handOver(settle bool) float64 {
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

// watched waits until the server holds so many more watches than before.
func (w *world) watched(before, more int64) {
	w.Helper()
	w.eventually(func() bool { return w.server.Watches() == before+more },
		func() string { return fmt.Sprintf("%d watches and not %d", w.server.Watches()-before, more) })
}

// maxPerHandOver allows for the release, and for the watch of a lock that a busy machine holds for more than 300 ms now
// and then.
const maxPerHandOver = 1.3

func TestAReleaseWakesOneWriterHoweverManyWait(t *testing.T) {
	for _, n := range []int{10, 50} {
		t.Run(fmt.Sprintf("%d sessions", n), func(t *testing.T) {
			w := newWorld(t)
			clients := w.clients(n + 1)
			watches := w.server.Watches()
			l := w.newLine(n, func(i int) *dlock.Client { return clients[i] })
			w.watched(watches, 2*int64(n)+1) // each waiter's predecessor and own node, and the holder's own
			spent := l.handOver(false)
			t.Logf("%.2f requests for each hand-over", spent)
			require.LessOrEqual(t, spent, maxPerHandOver)
			w.listed("q")
			w.watched(watches, 0)
		})
	}
	t.Run("50 of one session", func(t *testing.T) {
		w := newWorld(t)
		c := w.client("web1")
		watches := w.server.Watches()
		l := w.newLine(50, func(int) *dlock.Client { return c })
		w.watched(watches, 51) // everybody's node, once
		spent := l.handOver(false)
		t.Logf("%.2f requests for each hand-over", spent)
		require.LessOrEqual(t, spent, maxPerHandOver)
		w.watched(watches, 0)
	})
}

// The contrast: what WithWait(WatchQueue()) costs is what the default spares.
func TestWatchQueueWakesEverybodyWithEachRelease(t *testing.T) {
	const n = 20
	w := newWorld(t)
	clients := w.clients(n + 1)
	l := w.newLine(n, func(i int) *dlock.Client { return clients[i] }, dlock.WithWait(recipes.WatchQueue()))
	spent := l.handOver(true)
	t.Logf("%.2f requests for each hand-over", spent)
	// One Delete; and each of those who waited, (n+1)/2 of them on average, sets a watch and lists.
	require.GreaterOrEqual(t, spent, 1+float64(n+1)-2)
	w.listed("q")
}

func TestAReleaseByAWriterLetsReadersInWithoutARequest(t *testing.T) {
	const n = 20
	w := newWorld(t)
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
	require.LessOrEqual(t, spent, int64(n)) // some may have held for 300 ms before the last one came in: a watch each
	for _, k := range readers {
		w.unlock(k.lock)
	}
}
