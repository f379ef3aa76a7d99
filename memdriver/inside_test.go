package memdriver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// Nothing would ever remove the node of a Create that arrives too late.
func TestNoNodeIsAddedForASessionThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		opened, err := st.Connect(context.Background())
		require.NoError(t, err)
		s := opened.(*session)
		st.Faults().Delay(s, 2*time.Second)
		time.AfterFunc(time.Second/2, func() { drop(s) })
		_, err = s.Create(context.Background(), "q", driver.NodeSpec{Prefix: "a-"})
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		require.Zero(t, st.Stats().Nodes)
		require.Zero(t, st.Stats().Requests[faults.OpCreate])
		st.Faults().Delay(s, 0)
		require.NoError(t, s.Close())
	})
}

func drop(s *session) {
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
