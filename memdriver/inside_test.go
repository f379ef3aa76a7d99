package memdriver

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// A Create that arrived just before its session ended must not add a node just
// after: nobody would ever remove it.
func TestNoNodeIsAddedToARecordThatHasEnded(t *testing.T) {
	st := New()
	r := st.admit(time.Second)
	r.end()
	rep := st.create(r, &request{op: OpCreate, queue: "q", prefix: "a-"}, time.Now())
	require.ErrorIs(t, rep.err, driver.ErrSessionEnded)
	require.Zero(t, st.Stats().Nodes)
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
			s.record.end()
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

// A watch whose context ended while its request was on its way is not armed
// when it arrives.
func TestDroppedWatchIsNotArmed(t *testing.T) {
	st := New()
	opened, err := st.Connect(context.Background())
	require.NoError(t, err)
	defer opened.Close()
	s := opened.(*session)
	w := &watch{session: s, shard: st.shard("q"), ch: make(chan driver.Cause)}
	w.drop()
	require.NoError(t, st.watch(&request{op: OpWatch, queue: "q", watch: w}).err)
	require.Zero(t, st.Stats().Watches)
	<-w.ch
}

func TestListKeepsItsOrder(t *testing.T) {
	var l list[int]
	links := make([]link[int], 4)
	require.Empty(t, slices.Collect(l.all()))
	for i := range links {
		l.pushBack(&links[i], i)
	}
	l.remove(&links[1])
	l.remove(&links[1])
	require.Equal(t, []int{0, 2, 3}, slices.Collect(l.all()))
	for i := range l.all() {
		l.remove(&links[i])
	}
	require.Zero(t, l.len)
	l.pushBack(&links[1], 1)
	require.Equal(t, 1, l.front())
}

func TestOpsHaveNames(t *testing.T) {
	require.Equal(t, "clean-up", OpCleanUp.String())
	require.Equal(t, "close", OpClose.String())
	require.Equal(t, "unknown", opCount.String())
}
