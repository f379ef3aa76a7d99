package endtoend_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/recipes"
)

// A queue is a container node, which ZooKeeper deletes some time after the
// queue became empty. The next lock must recreate it.

func TestAQueueThatTheServerHasRemovedCostsFourRequestsMore(t *testing.T) {
	w := newWorldOn(t, zktest.Start(t, zktest.WithContainerCheck(5*time.Millisecond)))
	m := w.client("web1").RWMutex("q")
	var token int64
	for _, expected := range []int64{0, 2 + 4, 2 + 4} { // 0: not checked, because the first Lock also looks for the queue
		before := w.server.Requests(t)
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		require.Greater(t, l.Token(), token)
		token = l.Token()
		w.unlock(l)
		if expected > 0 {
			require.Equal(t, expected, w.server.Requests(t)-before)
		}
		w.eventually(func() bool { return w.missing("q") }, func() string { return "the server does not remove the queue" })
	}
}

func TestAServerThatRemovesEmptyQueuesTakesNoLockAway(t *testing.T) {
	t.Parallel()
	const queues, turns = 3, 200
	w := newWorldOn(t, zktest.Start(t, zktest.WithContainerCheck(time.Millisecond)))
	var (
		referees [queues]referee
		made     sync.Map // epochs of all queues; a recreated queue gets a new one
		wg       sync.WaitGroup
	)
	trace := dlock.WithTrace(&recipes.Trace{Queued: func(_ context.Context, i recipes.QueuedInfo) { made.Store(i.Place.Epoch, true) }})
	turn := func(c *dlock.Client, queue int, shared bool) error {
		m := c.RWMutex(fmt.Sprint("q", queue), trace)
		enter := m.Lock
		if shared {
			enter = m.RLock
		}
		l, err := enter(w.soon())
		if err != nil {
			return err
		}
		referees[queue].enter(l)
		referees[queue].leave(l)
		return release(l)
	}
	for i, c := range w.clients(3) {
		wg.Go(func() {
			for n := range turns {
				queue := n * (i + 1) % queues // clients meet in some queues and leave others empty
				if err := turn(c, queue, n%4 == i); err != nil {
					referees[queue].add("client %d, turn %d: %v", i, n, err)
				}
			}
		})
	}
	wg.Wait()
	entries := 0
	for i := range referees {
		referees[i].none(t)
		entries += referees[i].entries
	}
	require.Equal(t, 3*turns, entries)
	epochs := 0
	made.Range(func(any, any) bool { epochs++; return true })
	t.Logf("the queues were made %d times", epochs)
	require.Greater(t, epochs, 2*queues, "the server has removed too few queues")
}
