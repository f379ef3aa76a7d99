package recipes_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

// undeleting makes sessions whose Delete fails with err in queues below
// "refused".
type undeleting struct {
	driver.Connector
	err error

	mu    sync.Mutex
	asked int // number of refused Deletes
}

func (c *undeleting) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.Connector.Connect(ctx)
	return undeletingSession{s, c}, err
}

func (c *undeleting) refusals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

type undeletingSession struct {
	driver.Session
	by *undeleting
}

func (s undeletingSession) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if !strings.HasPrefix(queue, "refused/") {
		return s.Session.Delete(ctx, queue, p, why)
	}
	s.by.mu.Lock()
	defer s.by.mu.Unlock()
	s.by.asked++
	return fmt.Errorf("delete %s: %w", p.Name, s.by.err)
}

// refuse returns a client that has taken and unlocked n locks, whose nodes stay
// because every Delete fails with the error why.
func (w *world) refuse(why error, n int, opts ...recipes.Option) (*client, *undeleting) {
	w.Helper()
	store := &undeleting{Connector: w.store, err: why}
	c := w.clientOf(store, "a", opts...)
	var all sync.WaitGroup
	for i := range n {
		l, err := c.RWMutex(fmt.Sprintf("refused/%d", i)).Lock(bg)
		require.NoError(w, err)
		all.Go(func() { assert.ErrorIs(w, l.Unlock(), why) })
	}
	all.Wait()
	return c, store
}

var refusals = map[string]error{"for good": fs.ErrPermission, "for now": driver.ErrUnavailable}

func TestRefusedRemovalsDoNotHoldUpAnother(t *testing.T) {
	for name, why := range refusals {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c, _ := w.refuse(why, 100)
				l := w.won(c.lock(bg))
				w.store.Faults().LoseRequest(c.session().(undeletingSession).Session, faults.OpDelete)
				began := time.Now()
				require.NoError(w, l.Unlock())
				assert.Zero(w, time.Since(began))
				assert.Empty(w, w.names())
			})
		})
	}
}

func TestARemovalThatIsRefusedForGoodIsNotRepeated(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 10
		_, store := w.refuse(fs.ErrPermission, n)
		time.Sleep(time.Hour)
		assert.Equal(w, n, store.refusals())
	})
}

func TestARemovalThatIsRefusedForNowIsRepeatedAtItsOwnPace(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 10
		_, store := w.refuse(driver.ErrUnavailable, n)
		before := store.refusals()
		time.Sleep(time.Hour)
		each := (store.refusals() - before) / n
		assert.Greater(w, each, 1000, "the back-off pauses for at most 2 s and a half of that")
		assert.Less(w, each, 3600)
	})
}

func TestUnlockReportsAMissingPermissionAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		var released []recipes.ReleasedInfo
		c := w.clientOf(&undeleting{Connector: w.store, err: fs.ErrPermission}, "a",
			recipes.WithTrace(&recipes.Trace{Released: func(_ context.Context, i recipes.ReleasedInfo) { released = append(released, i) }}))
		l, err := c.RWMutex("refused/q").Lock(bg)
		require.NoError(w, err)
		began := time.Now()
		err = l.Unlock()
		assert.Zero(w, time.Since(began))
		require.ErrorIs(w, err, fs.ErrPermission)
		require.NotErrorIs(w, err, driver.ErrUnavailable)
		require.NotErrorIs(w, err, recipes.ErrLost)
		require.ErrorContains(w, err, "dlock: refused/q: ")
		require.ErrorContains(w, err, "node "+l.Node()+" stays until the session ends")
		require.ErrorIs(w, l.Unlock(), recipes.ErrNotHeld)
		require.Len(w, released, 1)
		assert.Equal(w, err, released[0].Err)

		next := w.client("b").RWMutex("refused/q")
		waiting := going(func() (*recipes.Lock, error) { return next.Lock(bg) })
		w.waits(waiting)
		require.NoError(w, c.Close())
		w.unlock(w.won(waiting))
	})
}

func TestAWaitersNodeThatMayNotBeRemovedIsReported(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		var reaped []recipes.ReapedInfo
		store := &undeleting{Connector: w.store, err: fs.ErrPermission}
		c := w.clientOf(store, "a", recipes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			recipes.WithTrace(&recipes.Trace{Reaped: func(_ context.Context, i recipes.ReapedInfo) { reaped = append(reaped, i) }}))
		held, err := w.client("h").RWMutex("refused/q").Lock(bg)
		require.NoError(w, err)
		_, err = c.RWMutex("refused/q", recipes.WithTimeout(time.Second)).Lock(bg)
		require.ErrorIs(w, err, recipes.ErrTimeout)
		synctest.Wait()
		require.Equal(w, 1, store.refusals())
		require.Len(w, reaped, 1)
		require.ErrorIs(w, reaped[0].Err, fs.ErrPermission)
		assert.Contains(w, log.String(), "a-W-0000000001")
		w.unlock(held)
	})
}
