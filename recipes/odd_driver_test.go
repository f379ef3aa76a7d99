package recipes_test

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

type stuckReplace struct{ driver.Connector }
type stuckSession struct {
	driver.Session
}

func (c stuckReplace) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	return stuckSession{s}, err
}
func (s stuckSession) Replace(ctx context.Context, q string, p driver.Place, prefix string) (driver.Place, error) {
	<-ctx.Done()
	return driver.Place{}, ctx.Err()
}

func TestADowngradeInterruptedByALossSaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.clientOf(stuckReplace{w.store}, "a")
		l := w.won(c.lock(bg))
		time.Sleep(soon)
		got := make(chan error, 1)
		go func() { got <- l.Downgrade(bg) }()
		synctest.Wait()
		w.store.Faults().RemoveNode("q", l.Node())
		err := <-got
		t.Log(err)
		require.ErrorIs(w, l.Err(), recipes.ErrLost)
		assert.ErrorIs(w, err, recipes.ErrLost)
		_ = l.Unlock()
	})
}

// earlyConn makes sessions whose watches end at once, which rule 6 of package
// driver permits.
type earlyConn struct {
	driver.Connector
	lists *atomic.Int64
}
type earlySession struct {
	driver.Session
	lists *atomic.Int64
}

func (c earlyConn) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	return earlySession{s, c.lists}, err
}
func (s earlySession) List(ctx context.Context, q string) ([]driver.Node, error) {
	s.lists.Add(1)
	return s.Session.List(ctx, q)
}
func (s earlySession) Create(ctx context.Context, q string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	return s.Session.Create(ctx, q, n)
}
func (s earlySession) Watch(context.Context, string, driver.Place, ...driver.Node) (driver.Watch, error) {
	c := make(chan driver.Cause)
	close(c)
	return driver.NewWatch(c, nil), nil
}

func TestWatchesThatCloseAtOnceMakeNoBusyLoop(t *testing.T) {
	store := memdriver.New()
	h := recipes.NewClient(store)
	defer h.Close()
	held, err := h.RWMutex("q").Lock(bg)
	require.NoError(t, err)
	var lists atomic.Int64
	c := recipes.NewClient(earlyConn{store, &lists})
	defer c.Close()
	ctx, cancel := context.WithTimeout(bg, 300*time.Millisecond)
	defer cancel()
	_, err = c.RWMutex("q").Lock(ctx)
	require.ErrorIs(t, err, recipes.ErrTimeout)
	t.Logf("%d lists in 300 ms", lists.Load())
	assert.Less(t, lists.Load(), int64(1000))
	require.NoError(t, held.Unlock())
}

func TestALossFoundByUnlockIsTraced(t *testing.T) {
	inWorld(t, func(w *world) {
		n := 0
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Lost: func(context.Context, recipes.LostInfo) { n++ }}))
		l := w.won(c.lock(bg))
		w.store.Faults().RemoveNode("q", l.Node())
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		synctest.Wait()
		assert.Equal(w, 1, n)
	})
}

func TestTheJoinedErrorMatchesTheFunctions(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		theirs := multierror.Append(nil, errors.New("x"))
		err := c.RWMutex("q").WithLock(bg, func(ctx context.Context, _ *recipes.Lock) error {
			w.store.Faults().Expire(c.session())
			return theirs
		})
		require.ErrorIs(w, err, recipes.ErrLost)
		assert.ErrorIs(w, err, theirs)
	})
}

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

func TestARemovedWaitingNodeIsNoticedByAWatchOfTheQueue(t *testing.T) {
	for _, wt := range []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchQueue(), recipes.Poll(time.Second)} {
		inWorld(t, func(w *world) {
			a, b := w.client("a"), w.client("b")
			held := w.won(a.lock(bg))
			waiting := b.lock(bg, recipes.WithWait(wt))
			time.Sleep(soon)
			w.store.Faults().RemoveNode("q", "b-W-0000000001")
			time.Sleep(3 * soon)
			assert.Len(w, w.names(), 2)
			w.unlock(held)
			time.Sleep(3 * soon)
			w.unlock(w.won(waiting))
		})
	}
}

func TestATryLockWhoseListIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.won(w.client("h").rlock(bg))
		c := w.client("a")
		heal := w.store.Faults().CutOff(c.session())
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		began := time.Now()
		_, err := c.RWMutex("q").TryLock(ctx)
		t.Log(err, time.Since(began))
		heal()
		time.Sleep(soon)
		assert.Len(w, w.names(), 1)
		w.unlock(held)
	})
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
