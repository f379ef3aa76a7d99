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

// A Create that arrives after the end of its session must not add a node,
// because nothing would ever remove it.
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

func TestWatchWhoseCallerGaveUpIsNotArmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := New()
		s, err := st.Connect(context.Background())
		require.NoError(t, err)
		defer s.Close()
		st.Faults().Delay(s, 2*time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
		defer cancel()
		_, err = s.WatchQueue(ctx, "q")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		require.Equal(t, int64(1), st.Stats().Requests[faults.OpWatchQueue], "the request has not arrived")
		require.Zero(t, st.Stats().Watches)
	})
}

// A session must end before the store removes its nodes (rule 8 of package
// driver). The test holds the store's mutex, so the nodes cannot be removed,
// but the session must end all the same.
func TestSessionEndsBeforeItsNodesGo(t *testing.T) {
	for how, end := range map[string]func(s *session){
		"closed":  func(s *session) { _ = s.Close() },
		"expired": func(s *session) { s.store.Faults().Expire(s) },
	} {
		t.Run(how, func(t *testing.T) {
			st := New(WithSessionTimeout(time.Hour)) // so long that the lease does not end during the test
			opened, err := st.Connect(context.Background())
			require.NoError(t, err)
			s := opened.(*session)
			_, err = s.Create(context.Background(), "q", driver.NodeSpec{Prefix: "a-"})
			require.NoError(t, err)
			st.mu.Lock()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				end(s)
			}()
			select {
			case <-s.Done():
				if s.Err() == nil {
					t.Error("Err is nil, and Done is closed")
				}
			case <-time.After(10 * time.Second):
				t.Error("the session ends only when its nodes go")
			}
			st.mu.Unlock()
			<-ended
			require.Zero(t, st.Stats().Nodes)
			require.NoError(t, s.Close())
		})
	}
}
