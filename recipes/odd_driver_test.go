package recipes_test

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// refuse makes sessions whose first Replace fails, and the others are refused with
// err.
type refuse struct {
	driver.Connector
	err error
	n   *atomic.Int64
}
type refuseSession struct {
	driver.Session
	refuse
}

func (c refuse) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	return refuseSession{s, c}, err
}
func (s refuseSession) Replace(ctx context.Context, q string, p driver.Place, prefix string) (driver.Place, error) {
	if s.n.Add(1) == 1 {
		return driver.Place{}, driver.ErrUnavailable
	}
	if s.err == driver.ErrSessionEnded {
		_ = s.Session.Close()
	}
	return driver.Place{}, s.err
}

func TestAReplaceThatIsRefusedForGoodIsReportedAndNotRepeatedForEver(t *testing.T) {
	for _, refusal := range []error{fs.ErrPermission, driver.ErrGone, driver.ErrSessionEnded} {
		inWorld(t, func(w *world) {
			var n atomic.Int64
			var reaped []recipes.ReapedInfo
			c := w.clientOf(refuse{w.store, refusal, &n}, "a", recipes.WithTrace(&recipes.Trace{
				Reaped: func(_ context.Context, i recipes.ReapedInfo) { reaped = append(reaped, i) }}))
			l := w.won(c.lock(bg))
			require.ErrorIs(w, l.Downgrade(bg), driver.ErrUnavailable)
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.EqualValues(w, 2, n.Load())
			require.Len(w, reaped, 1)
			require.ErrorIs(w, reaped[0].Err, refusal)
			assert.Equal(w, refusal != fs.ErrPermission, errors.Is(l.Unlock(), recipes.ErrLost))
		})
	}
}

// If a list lacks the waiter's node, the waiter starts over with a new node. It
// must still delete the old one, which would otherwise block all contenders.
func TestANodeThatIsNotListedIsRemovedAllTheSame(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("a").lock(bg))
		var lists atomic.Int64
		c := w.clientOf(forgetfulConn{w.store, &lists}, "b")
		locked := make(chan *recipes.Lock)
		go func() {
			l, err := c.RWMutex("q").Lock(bg)
			assert.NoError(w, err)
			locked <- l
		}()
		synctest.Wait()
		require.Len(w, w.names(), 2, "the holder's node, and the waiter's second node")
		w.unlock(held)
		w.unlock(<-locked)
		assert.Empty(w, w.names())
	})
}

// forgetfulConn makes sessions that imitate a faulty server. The first list
// that has several nodes lacks the last one.
type forgetfulConn struct {
	driver.Connector
	lists *atomic.Int64
}

type forgetfulSession struct {
	driver.Session
	lists *atomic.Int64
}

func (c forgetfulConn) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	return forgetfulSession{s, c.lists}, err
}

func (s forgetfulSession) Create(ctx context.Context, q string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	j, err := s.Session.Create(ctx, q, n)
	return driver.Joined{Place: j.Place}, err
}

func (s forgetfulSession) List(ctx context.Context, q string) ([]driver.Node, error) {
	nodes, err := s.Session.List(ctx, q)
	if len(nodes) > 1 && s.lists.Add(1) == 1 {
		nodes = nodes[:len(nodes)-1]
	}
	return nodes, err
}
