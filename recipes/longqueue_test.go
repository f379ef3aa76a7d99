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

// listing is a connector. It has weak pointers to the lists that Create has
// returned, so that it does not itself keep the lists in memory.
type listing struct {
	driver.Connector
	lists []weak.Pointer[driver.Node]
}

type listingSession struct {
	driver.Session
	by *listing
}

func (c *listing) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	return listingSession{s, c}, err
}

func (s listingSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	if len(j.Ahead) > 0 {
		s.by.lists = append(s.by.lists, weak.Make(&j.Ahead[0]))
	}
	return j, err
}

// If waiters kept the list of their queue while they wait, n waiters would take
// memory in proportion to n^2.
func TestWaiterDoesNotKeepTheListOfItsQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").lock(bg))
		c := &listing{Connector: w.store}
		waiter := w.clientOf(c, "w").lock(bg)
		w.waits(waiter)
		synctest.Wait()
		runtime.GC()
		require.Len(w, c.lists, 1)
		require.Nil(w, c.lists[0].Value(), "the long list is still in memory")
		w.unlock(held)
		w.unlock(w.won(waiter))
	})
}
