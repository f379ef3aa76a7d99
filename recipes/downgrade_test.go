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
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func TestADowngradeGrantsTheLockToQueuedReadersAndNotToAWriter(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.won(w.client("a").lock(bg))
		r1, wr, r2 := w.client("b").rlock(bg), w.client("c").lock(bg), w.client("d").rlock(bg)
		token := l.Token()
		require.NoError(w, l.Downgrade(bg))
		assert.Equal(w, recipes.Shared, l.Mode())
		assert.Equal(w, "a-R-0000000000", l.Node())
		assert.Equal(w, token, l.Token())
		assert.Equal(w, "a-R-0000000000", w.names()[0])
		entered := w.won(r1)
		w.waits(wr)
		w.waits(r2)
		require.NoError(w, l.Downgrade(bg), "a second Downgrade does nothing")
		w.unlock(l)
		w.waits(wr)
		w.unlock(entered)
		w.unlock(w.won(wr))
		w.unlock(w.won(r2))
	})
}

func TestADowngradeDuringASearchForTheNodeIsNoLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		search := make(chan struct{})
		c := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			switch {
			case r.Op == faults.OpWatch && r.Stage == faults.StageRequest && r.Nth == 1:
				return faults.Fault{EndWatchAfter: time.Second} // then the holder searches for its node
			case r.Op == faults.OpRead && r.Stage == faults.StageRequest && r.Nth == 1:
				close(search)
				return faults.Fault{Delay: time.Second}
			}
			return faults.Fault{}
		}), "a")
		l := w.won(c.lock(bg))
		<-search
		require.NoError(w, l.Downgrade(bg))
		time.Sleep(time.Minute)
		require.NoError(w, l.Err())
		w.unlock(l)
	})
}

func TestDowngradeWaitsForTheOtherExclusiveHolds(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer := w.won(c.lock(bg))
		inner := w.won(c.lock(outer.Context(bg)))
		reader := w.client("b").rlock(bg)
		require.NoError(w, outer.Downgrade(bg))
		assert.Equal(w, recipes.Shared, outer.Mode())
		assert.Equal(w, recipes.Exclusive, inner.Mode())
		w.waits(reader)
		time.Sleep(301 * time.Millisecond) // until the holder watches its own node
		before := w.store.Stats()
		w.unlock(inner)
		entered := w.won(reader)
		time.Sleep(time.Minute)
		assert.LessOrEqual(w, w.spent(before)[faults.OpRead], int64(2), "the holder looks for its renamed node, but not for ever")
		w.unlock(outer, entered)
	})
}

func TestADowngradeWhoseReplyIsLostCountsAndIsFinished(t *testing.T) {
	for _, committed := range []bool{false, true} {
		inWorld(t, func(w *world) {
			c := w.client("a")
			l := w.won(c.lock(bg))
			reader, writer := w.client("b").rlock(bg), w.client("c").lock(bg)
			time.Sleep(soon) // wait until the holder watches its own node
			w.lose(c.session(), faults.OpReplace, committed)
			err := l.Downgrade(bg)
			require.ErrorIs(w, err, driver.ErrUnavailable)
			assert.Equal(w, recipes.Shared, l.Mode(), "readers may hold the lock by now")
			require.ErrorIs(w, w.failed(c.lock(l.Context(bg))), recipes.ErrUpgrade)
			time.Sleep(soon)
			entered := w.won(reader)
			require.NoError(w, l.Err())
			require.NoError(w, l.Downgrade(bg))
			assert.Equal(w, "a-R-0000000000", l.Node())
			w.unlock(l)
			w.waits(writer)
			w.unlock(entered)
			w.unlock(w.won(writer))
		})
	}
}

// lateReplace makes Replace take effect at once, but return after its caller
// has given up.
type lateReplace struct {
	replacing atomic.Bool
	deleted   atomic.Pointer[deletion]
}

type deletion struct {
	place     driver.Place
	replacing bool
}

type lateSession struct {
	driver.Session
	store *lateReplace
}

func (s lateSession) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	s.store.replacing.Store(true)
	defer s.store.replacing.Store(false)
	after, err := s.Session.Replace(ctx, queue, p, prefix)
	<-ctx.Done()
	time.Sleep(100 * time.Millisecond)
	return after, err
}

func (s lateSession) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	s.store.deleted.Store(&deletion{p, s.store.replacing.Load()})
	return s.Session.Delete(ctx, queue, p, why)
}

func TestUnlockDeletesNoNodeBeforeTheReplaceInFlightHasReturned(t *testing.T) {
	inWorld(t, func(w *world) {
		store := new(lateReplace)
		l := w.won(w.clientOf(wrapped(w.store, func(s driver.Session) driver.Session { return lateSession{s, store} }), "a").lock(bg))
		downgraded := make(chan error, 1)
		going(func() (*recipes.Lock, error) { downgraded <- l.Downgrade(bg); return nil, nil })
		require.Equal(w, []string{"a-R-0000000000"}, w.names())
		w.unlock(l)
		require.ErrorIs(w, <-downgraded, recipes.ErrNotHeld)
		deleted := store.deleted.Load()
		require.NotNil(w, deleted)
		assert.False(w, deleted.replacing)
		assert.Equal(w, "a-R-0000000000", deleted.place.Name)
		assert.Empty(w, w.names())
	})
}

func TestTheInnerUnlockMayOvertakeTheOuterOne(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		outer := w.won(c.lock(bg))
		inner := w.won(c.rlock(outer.Context(bg)))
		w.store.Faults().Delay(c.session(), 500*time.Millisecond)
		got := make(chan error, 1)
		go func() { got <- outer.Unlock() }()
		synctest.Wait()
		require.NoError(w, inner.Unlock())
		err := <-got
		w.store.Faults().Delay(c.session(), 0)
		time.Sleep(soon)
		assert.NoError(w, err)
	})
}

type refusingSession struct {
	driver.Session
	err error
	n   *int
}

func (s refusingSession) Replace(context.Context, string, driver.Place, string) (driver.Place, error) {
	if *s.n++; *s.n == 1 {
		return driver.Place{}, driver.ErrUnavailable
	}
	time.Sleep(time.Second) // wait until Downgrade has returned
	if s.err == driver.ErrSessionEnded {
		_ = s.Session.Close()
	}
	return driver.Place{}, s.err
}

func TestAReplaceThatIsRefusedForGoodIsReportedAndNotRepeatedForEver(t *testing.T) {
	for _, refusal := range []error{fs.ErrPermission, driver.ErrGone, driver.ErrSessionEnded} {
		inWorld(t, func(w *world) {
			n := 0
			var reaped []recipes.ReapedInfo
			refuse := func(s driver.Session) driver.Session { return refusingSession{s, refusal, &n} }
			c := w.clientOf(wrapped(w.store, refuse), "a", recipes.WithTrace(&recipes.Trace{
				Reaped: func(_ context.Context, i recipes.ReapedInfo) { reaped = append(reaped, i) }}))
			l := w.won(c.lock(bg))
			require.ErrorIs(w, l.Downgrade(bg), driver.ErrUnavailable)
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.Equal(w, 2, n)
			require.Len(w, reaped, 1)
			require.ErrorIs(w, reaped[0].Err, refusal)
			assert.Equal(w, refusal != fs.ErrPermission, errors.Is(l.Unlock(), recipes.ErrLost))
		})
	}
}

func TestDowngradesInAnOutageDoNotPileUp(t *testing.T) {
	inWorld(t, func(w *world) {
		reaped := 0
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Reaped: func(context.Context, recipes.ReapedInfo) { reaped++ }}))
		l := w.won(c.lock(bg))
		heal := w.store.Faults().CutOff(c.session())
		for range 100 {
			ctx, cancel := context.WithTimeout(bg, time.Millisecond)
			require.ErrorIs(w, l.Downgrade(ctx), driver.ErrUnavailable)
			cancel()
		}
		w.unlock(w.won(c.rlock(l.Context(bg)))) // without a request
		heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.LessOrEqual(w, reaped, 1)
		w.unlock(l)
	})
}
