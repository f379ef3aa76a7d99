package memdriver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

func TestRequestsWaitWhileCutOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		heal, heal2 := st.Faults().CutOff(s), st.Faults().CutOff(s)
		time.AfterFunc(time.Second, heal)
		time.AfterFunc(2*time.Second, func() { heal(); heal2() })
		start := time.Now()
		require.ErrorIs(t, withDeadline(time.Second, func(ctx context.Context) error {
			_, err := s.List(ctx, queue)
			return err
		}), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		create(t, s)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Len(t, list(t, other), 1)
		create(t, s)
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestCleanUpIsRepeatedUntilItIsConfirmed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		st.Faults().LoseReply(s, faults.OpCreate)
		st.Faults().LoseRequest(s, faults.OpCleanUp)
		st.Faults().LoseReply(s, faults.OpCleanUp)
		_, err := s.Create(background, queue, newNode)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		synctest.Wait()
		require.Empty(t, list(t, s))
		require.Equal(t, int64(2), requests(st, faults.OpCleanUp), "of three requests the first was lost, and the reply to the second")
	})
}

func TestDelayTakesItsTimeBothWays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		st.Faults().Delay(s, 2*time.Second)
		start := time.Now()
		p := create(t, s)
		require.Equal(t, 2*time.Second, time.Since(start))
		gone := watch(t, s, p).C
		require.Equal(t, 4*time.Second, time.Since(start))
		require.True(t, st.Faults().RemoveNode(queue, p.Name))
		<-gone
		require.Equal(t, 5*time.Second, time.Since(start), "a notice takes half the delay")
		require.Empty(t, list(t, other))
		require.Equal(t, 5*time.Second, time.Since(start), "another session is not delayed")
		require.Error(t, withDeadline(time.Second, func(ctx context.Context) error {
			_, err := s.List(ctx, queue)
			return err
		}))
		require.Equal(t, 6*time.Second, time.Since(start))
		elapse(time.Minute)
		require.NoError(t, s.Err(), "a slow connection has ended the lease")
	})
}

func TestHeartbeatsThatTakeTooLongLoseTheLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		idle, busy := connect(t, st), connect(t, st)
		for _, s := range []driver.Session{idle, busy} {
			st.Faults().Delay(s, 3*time.Second)
		}
		for range 10 {
			list(t, busy)
		}
		require.ErrorIs(t, idle.Err(), driver.ErrSessionEnded)
		require.NoError(t, busy.Err())
	})
}

func TestDelayedRepliesAreNotStoppedByALaterCut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		st.Faults().DelayReplies(s, 2*time.Second)
		start := time.Now()
		time.AfterFunc(time.Second, func() {
			if nodes, _ := other.List(background, queue); len(nodes) != 1 {
				t.Errorf("%d nodes, expected 1: the request has not arrived at once", len(nodes))
			}
			st.Faults().CutOff(s)
		})
		create(t, s)
		require.Equal(t, 2*time.Second, time.Since(start))
		<-s.Done()
		require.Equal(t, 7500*time.Millisecond, time.Since(start), "the lease counts from the reply")
	})
}

func TestHeldRequestArrivesLater(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		arriveDelete := st.Faults().HoldRequest(s, faults.OpDelete)
		arriveCreate := st.Faults().HoldRequest(s, faults.OpCreate)
		arriveDelete() // a no-op, because no Delete was sent yet
		require.ErrorIs(t, s.Delete(background, queue, p, driver.Changed), driver.ErrUnavailable)
		_, err := s.Create(background, queue, newNode)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		synctest.Wait()
		require.Equal(t, []driver.Node{p.Node}, list(t, s))
		for range 2 {
			arriveCreate()
			require.Equal(t, []driver.Node{p.Node}, list(t, s), "a Create that was cleaned up")
		}
		for range 2 {
			arriveDelete()
			require.Empty(t, list(t, s))
		}
		require.Equal(t, int64(1), requests(st, faults.OpDelete))
		require.Equal(t, int64(2), requests(st, faults.OpCreate))
	})
}

func TestResetLosesNoNotices(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		ahead, own := create(t, other), create(t, s)
		w := watch(t, s, own, ahead.Node)
		st.Faults().Delay(s, 2*time.Second)
		for _, after := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} {
			time.AfterFunc(after, func() { st.Faults().Reset(s) })
			_, err := s.List(background, queue)
			require.ErrorIs(t, err, driver.ErrUnavailable)
		}
		require.Equal(t, int64(1), requests(st, faults.OpList), "the first request was lost, and the reply to the second")
		require.Len(t, list(t, s), 2)
		require.True(t, open(w.C))
		require.NoError(t, other.Delete(background, queue, ahead, driver.Released))
		st.Faults().Reset(s)
		require.Equal(t, driver.Released, <-w.C)
		require.NoError(t, s.Err())
	})
}

func TestSessionSurvivesAShortPause(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		for range 10 {
			st.Faults().Pause(s, 3*time.Second)
			elapse(3 * time.Second)
		}
		require.NoError(t, s.Err())
		require.Equal(t, []driver.Node{p.Node}, list(t, s))
	})
}

func TestExpireAllGrantsNothingToASessionThatEndsToo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		var all []driver.Session
		for range 50 {
			all = append(all, connect(t, st))
		}
		ahead := create(t, all[0])
		woken := make(chan error, len(all))
		for _, s := range all[1:] {
			w, err := s.Watch(background, queue, create(t, s), ahead.Node)
			require.NoError(t, err)
			go func() {
				<-w.C
				woken <- s.Err()
			}()
		}
		synctest.Wait()
		st.Faults().ExpireAll()
		for _, s := range all {
			require.ErrorIs(t, s.Err(), driver.ErrSessionEnded)
			require.False(t, open(s.Done()))
		}
		for range all[1:] {
			require.ErrorIs(t, <-woken, driver.ErrSessionEnded, "the waiter has lost its own node, too")
		}
		require.Zero(t, st.Stats().Sessions)
		require.Empty(t, list(t, connect(t, st)))
		st.Faults().ExpireAll()
	})
}

func TestPauseAllEndsEveryLeaseThatRunsOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		a, b := connect(t, st), connect(t, st)
		create(t, a)
		create(t, b)
		st.Faults().PauseAll(7 * time.Second)
		require.NoError(t, a.Err())
		st.Faults().PauseAll(3 * time.Second)
		for _, s := range []driver.Session{a, b} {
			require.True(t, open(s.Done()), "no timer has run yet")
			require.ErrorIs(t, s.Err(), driver.ErrSessionEnded)
		}
		require.Empty(t, list(t, connect(t, st)))
	})
}

func TestDownCutsAllSessionsOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		a, b := connect(t, st), connect(t, st)
		create(t, a)
		up := st.Faults().Down()
		_, err := st.Connect(background)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		for _, s := range []driver.Session{a, b} {
			require.ErrorIs(t, withDeadline(time.Second, func(ctx context.Context) error {
				_, err := s.List(ctx, queue)
				return err
			}), context.DeadlineExceeded)
		}
		up()
		require.Len(t, list(t, b), 1)
		connect(t, st)
		up = st.Faults().Down()
		<-a.Done()
		up()
		require.NoError(t, a.Close())
		require.Empty(t, list(t, connect(t, st)))
	})
}

func TestFaultOnAForeignSessionPanics(t *testing.T) {
	st := memdriver.New()
	s := connect(t, memdriver.New())
	require.PanicsWithValue(t, "memdriver: *memdriver.session is not a session of this store", func() { st.Faults().Expire(s) })
	require.Panics(t, func() { st.Faults().CutOff(nil) })
	require.Panics(t, func() { memdriver.New().Faults().LoseReply(connect(t, st), faults.Op(99)) })
}
