package recipes_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

// undeleting refuses and counts the Deletes in queues below "refused".
func (w *world) undeleting(why error, asked *atomic.Int64) driver.Connector {
	return faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
		if r.Op != faults.OpDelete || r.Stage != faults.StageRequest || !strings.HasPrefix(r.Queue, "refused/") {
			return faults.Fault{}
		}
		asked.Add(1)
		return faults.Fault{Lose: true, Err: why}
	})
}

// refuse unlocks n locks whose nodes stay, because every Delete fails with why.
func (w *world) refuse(why error, n int, opts ...recipes.Option) (*client, *atomic.Int64) {
	w.Helper()
	asked := new(atomic.Int64)
	c := w.clientOf(w.undeleting(why, asked), "a", opts...)
	var all sync.WaitGroup
	for i := range n {
		l := w.granted(c.RWMutex(fmt.Sprintf("refused/%d", i)).Lock(bg))
		all.Go(func() { assert.ErrorIs(w, l.Unlock(), why) })
	}
	all.Wait()
	return c, asked
}

var refusals = map[string]error{"for good": fs.ErrPermission, "for now": driver.ErrUnavailable}

func TestRefusedRemovalsDoNotHoldUpAnother(t *testing.T) {
	for name, why := range refusals {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c, _ := w.refuse(why, 100)
				l := w.won(c.lock(bg))
				w.store.Faults().LoseRequest(c.session(), faults.OpDelete)
				began := time.Now()
				require.NoError(w, l.Unlock())
				assert.Zero(w, time.Since(began))
				assert.Empty(w, w.names())
			})
		})
	}
}

func TestOnlyARemovalThatIsRefusedForNowIsRepeated(t *testing.T) {
	for name, why := range refusals {
		inWorld(t, func(w *world) {
			const n = 10
			_, asked := w.refuse(why, n)
			before := asked.Load()
			time.Sleep(time.Hour)
			switch each := (asked.Load() - before) / n; name {
			case "for good":
				assert.EqualValues(w, n, before)
				assert.Zero(w, each)
			case "for now":
				assert.Greater(w, each, int64(1000), "the back-off pauses for at most 2 s and a half of that")
				assert.Less(w, each, int64(3600))
			}
		})
	}
}

func TestUnlockReportsAMissingPermissionAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		var released []recipes.ReleasedInfo
		c := w.clientOf(w.undeleting(fs.ErrPermission, new(atomic.Int64)), "a",
			recipes.WithTrace(&recipes.Trace{Released: func(_ context.Context, i recipes.ReleasedInfo) { released = append(released, i) }}))
		l := w.granted(c.RWMutex("refused/q").Lock(bg))
		began := time.Now()
		err := l.Unlock()
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
		var log safeBuffer
		var asked atomic.Int64
		var reaped []recipes.ReapedInfo
		c := w.clientOf(w.undeleting(fs.ErrPermission, &asked), "a", logTo(&log),
			recipes.WithTrace(&recipes.Trace{Reaped: func(_ context.Context, i recipes.ReapedInfo) { reaped = append(reaped, i) }}))
		held := w.granted(w.client("h").RWMutex("refused/q").Lock(bg))
		_, err := c.RWMutex("refused/q", recipes.WithTimeout(time.Second)).Lock(bg)
		require.ErrorIs(w, err, recipes.ErrTimeout)
		synctest.Wait()
		require.EqualValues(w, 1, asked.Load())
		require.Len(w, reaped, 1)
		require.ErrorIs(w, reaped[0].Err, fs.ErrPermission)
		assert.Contains(w, log.String(), "a-W-0000000001")
		w.unlock(held)
	})
}
