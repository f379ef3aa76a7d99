package memdriver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// A Create that is on its way when the store drops its session must not add a
// node afterwards: no owner would ever remove it.
func TestNoNodeIsAddedForASessionThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		opened, err := st.Connect(context.Background())
		require.NoError(t, err)
		s := opened.(*session)
		st.Faults().Delay(s, 2*time.Second)
		time.AfterFunc(time.Second/2, func() { dropped(s) })
		_, err = s.Create(context.Background(), "q", "a-", nil)
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		require.Zero(t, st.Stats().Nodes)
		require.Zero(t, st.Stats().Requests[OpCreate])
		require.NoError(t, s.Close())
	})
}

// dropped has the store drop a session without a word to it.
func dropped(s *session) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.drop(s.record)
}

func TestCloseWaitsForTheGoroutinesOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, err := New().Connect(context.Background())
		require.NoError(t, err)
		s := opened.(*session)
		finish, closed := make(chan struct{}), make(chan struct{})
		s.spawn(func() { <-finish })
		go func() {
			_ = s.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait")
		default:
		}
		close(finish)
		<-closed
		require.False(t, s.spawn(func() { t.Error("started after Close") }))
	})
}

// A store that has dropped a session says so, and the session believes it.
func TestSessionEndsWhenTheStoreDoesNotKnowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, use := range []bool{true, false} {
			opened, err := New().Connect(context.Background())
			require.NoError(t, err)
			s := opened.(*session)
			dropped(s)
			require.NoError(t, s.Err())
			if use {
				_, err = s.List(context.Background(), "q")
				require.ErrorIs(t, err, driver.ErrSessionEnded)
			}
			start := time.Now()
			<-s.Done()
			require.LessOrEqual(t, time.Since(start), s.timeout/4, "a heartbeat tells it")
			require.Equal(t, use, time.Since(start) == 0)
			require.NoError(t, s.Close())
		}
	})
}

// A watch whose caller gave up while the request was on its way is not armed
// when the request arrives.
func TestDroppedWatchIsNotArmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		s, err := st.Connect(context.Background())
		require.NoError(t, err)
		defer s.Close()
		st.Faults().Delay(s, 2*time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		_, err = s.Watch(ctx, "q", "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		require.Equal(t, int64(1), st.Stats().Requests[OpWatch], "the request has not arrived")
		require.Zero(t, st.Stats().Watches)
	})
}

func TestOpsHaveNames(t *testing.T) {
	require.Equal(t, "clean-up", OpCleanUp.String())
	require.Equal(t, "close", OpClose.String())
	require.Equal(t, "unknown", opCount.String())
}
