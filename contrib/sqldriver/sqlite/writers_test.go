package sqlite

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

func TestAHeartbeatGoesAheadOfTransactionsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriters()
		leave, err := w.enter(t.Context(), ordinary)
		require.NoError(t, err)
		var order []urgency
		for _, u := range []urgency{ordinary, ordinary, ordinary, urgent, ordinary} {
			go func() {
				leave, err := w.enter(t.Context(), u)
				assert.NoError(t, err)
				order = append(order, u)
				leave()
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = w.enter(ctx, ordinary)
		assert.ErrorIs(t, err, context.Canceled)
		leave()
		synctest.Wait()
		assert.Equal(t, []urgency{urgent, ordinary, ordinary, ordinary, ordinary}, order)
	})
}

// A slow machine gets more attempts, with longer timeouts.
func TestASessionOutlivesSessionsThatWriteWithoutPause(t *testing.T) {
	for timeout := time.Second; !outlivesWriters(t, timeout); timeout *= 2 {
		require.Less(t, timeout, 10*time.Second, "the session ends")
	}
}

func outlivesWriters(t *testing.T, timeout time.Duration) (outlives bool) {
	path := filepath.Join(directory(t), "locks.db")
	s := connect(t, newStoreAt(t, path, timeout))
	var busy int64
	var sessions []driver.Session
	for range 8 {
		sessions = append(sessions, connect(t, newStoreAt(t, path, time.Hour)))
	}
	for _, w := range append(sessions, s) {
		busy -= wireOf(w).busy.Load()
	}
	var writers sync.WaitGroup
	began := time.Now()
	for _, w := range sessions {
		writers.Go(func() {
			for time.Since(began) < timeout+timeout/4 {
				j, err := w.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
				if assert.NoError(t, err) {
					assert.NoError(t, w.Delete(t.Context(), "q", j.Place, driver.Changed))
				}
			}
		})
	}
	writers.Wait()
	outlives = s.Err() == nil
	for _, w := range append(sessions, s) {
		busy += wireOf(w).busy.Load()
	}
	assert.Zero(t, busy, "how often a transaction found the file locked")
	return outlives
}

func TestACallEndsWithItsSessionWhileTheDatabaseIsLocked(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	s := connect(t, newStoreAt(t, path, time.Second))
	other := connect(t, newStoreAt(t, path, time.Hour))
	err := memberOf(other).db.use(t.Context(), func() error {
		require.NoError(t, memberOf(other).db.exec(t.Context(), sqlBegin))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.Create(ctx, "q", driver.NodeSpec{Prefix: "a-W-"})
		assert.ErrorIs(t, err, driver.ErrSessionEnded)
		assert.NoError(t, ctx.Err(), "the call waited for its own ctx")
		return memberOf(other).db.exec(t.Context(), sqlRollback)
	})
	require.NoError(t, err)
}
