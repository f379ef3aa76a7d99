package recipes_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// listing has weak pointers to lists, to see which of them the client keeps.
type listing struct {
	lists []weak.Pointer[driver.Node]
	ahead [][]driver.Node
}

type listingSession struct {
	driver.Session
	by *listing
}

func (c *listing) in(store driver.Connector) driver.Connector {
	return wrapped(store, func(s driver.Session) driver.Session { return listingSession{s, c} })
}

func (s listingSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	if len(j.Ahead) > 0 {
		s.by.lists = append(s.by.lists, weak.Make(&j.Ahead[0]))
	}
	return j, err
}

func (s listingSession) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.Session.List(ctx, queue)
	if len(nodes) > 0 {
		s.by.lists = append(s.by.lists, weak.Make(&nodes[0]))
	}
	return nodes, err
}

func (s listingSession) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	s.by.ahead = append(s.by.ahead, ahead)
	return s.Session.Watch(ctx, queue, p, ahead...)
}

// If n waiters kept their lists, they would need memory in proportion to n^2.
func TestWaiterDoesNotKeepTheListOfItsQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		c := new(listing)
		waiter := w.clientOf(c.in(w.store), "w").lock(bg)
		w.waits(waiter)
		synctest.Wait()
		runtime.GC()
		require.Len(w, c.lists, 1)
		require.Nil(w, c.lists[0].Value(), "the long list is still in memory")
		w.unlock(held)
		w.unlock(w.won(waiter))
	})
}

func TestNodesToWatchDoNotKeepTheListOfTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		between := w.client("b").lock(bg)
		w.waits(between)
		c := new(listing)
		waiter := w.clientOf(c.in(w.placeOnly()), "w").lock(bg)
		w.waits(waiter)
		synctest.Wait()
		runtime.GC()
		require.Len(w, c.ahead, 1)
		require.Len(w, c.ahead[0], 1)
		require.Len(w, c.lists, 1)
		require.Nil(w, c.lists[0].Value(), "the long list is still in memory")
		w.unlock(held)
		w.unlock(w.won(between))
		w.unlock(w.won(waiter))
		runtime.KeepAlive(c)
	})
}
