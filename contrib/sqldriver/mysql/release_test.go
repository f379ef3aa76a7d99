package mysql

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/mysqltest"
)

// watched is a session that watches its own node and one ahead of it. Its polls
// are blocked until openGate.
type watched struct {
	*counted
	c     *countedConnector
	gate  chan struct{}
	own   driver.Joined
	watch driver.Watch
}

// watchNode creates a node behind another one, and watches both.
func watchNode(t *testing.T, c *countedConnector, ahead driver.Node) *watched {
	t.Helper()
	s, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &watched{counted: s.(*counted), c: c}
	w.own = create(t, s, "q")
	if w.watch, err = s.Watch(t.Context(), "q", w.own.Place, ahead); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.watch.Stop)
	w.gate = w.holdLooks()
	w.passLook(t, w.gate) // so that no earlier poll is still running
	return w
}

// next unblocks the polls. It returns the cause that the watch reports, or
// ended if the watch has ended.
func (w *watched) next(t *testing.T) (why driver.Cause, ended bool) {
	t.Helper()
	w.openGate()
	select {
	case why, open := <-w.watch.C:
		return why, !open
	case <-time.After(30 * time.Second):
		t.Fatal("the watch goes on")
		return driver.Changed, false
	}
}

// holder returns a session whose node is the first of the queue.
func holder(t *testing.T) (*countedConnector, driver.Session, driver.Joined) {
	t.Helper()
	c := newCounted(t, mysqltest.Shared(t))
	s, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return c, s, create(t, s, "q")
}

func TestReleasedIsSent(t *testing.T) {
	c, s, held := holder(t)
	w := watchNode(t, c, held.Node)
	if err := s.Delete(t.Context(), "q", held.Place, driver.Released); err != nil {
		t.Fatal(err)
	}
	if why, ended := w.next(t); why != driver.Released || ended {
		t.Errorf("the watch sends %v, ended %v", why, ended)
	}
}

// A single poll may find both that the waiter's node was removed and that the
// lock was released afterwards. The watch must not report the release.
func TestReleasedDoesNotOvertakeTheRemovalOfTheOwnNode(t *testing.T) {
	c, s, held := holder(t)
	w := watchNode(t, c, held.Node)
	c.server.SQL(t, c.database, "DELETE FROM dlock_node WHERE name = '"+w.own.Name+"'")
	if err := s.Delete(t.Context(), "q", held.Place, driver.Released); err != nil {
		t.Fatal(err)
	}
	if why, ended := w.next(t); !ended {
		t.Errorf("the watch sends %v", why)
	}
}

// An operator may create a node with the name of a released one. When the new
// node is removed, the watch must not report a release.
func TestReleaseOfAnOlderNodeOfTheNameIsNotReleased(t *testing.T) {
	c, s, held := holder(t)
	if err := s.Delete(t.Context(), "q", held.Place, driver.Released); err != nil {
		t.Fatal(err)
	}
	c.server.SQL(t, c.database, "INSERT INTO dlock_node (queue, name, data) VALUES ('q', '"+held.Name+"', '')")
	w := watchNode(t, c, held.Node)
	c.server.SQL(t, c.database, "DELETE FROM dlock_node WHERE name = '"+held.Name+"'")
	if why, ended := w.next(t); !ended {
		t.Errorf("the watch sends %v", why)
	}
}
