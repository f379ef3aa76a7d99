package memdriver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

func TestExpireEndsTheSessionBeforeItsNodesGo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		p := create(t, s)
		w := witness(t, s, other, p.Name)
		st.Faults().Expire(s)
		require.True(t, *w)
		require.Empty(t, list(t, other))
		require.ErrorContains(t, s.Err(), "expired")
		require.NoError(t, s.Close())
		st.Faults().Expire(s) // once more
	})
}

func TestCutOffSessionEndsBeforeTheStoreDropsIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		p := create(t, s)
		gone := watch(t, other, p.Name)
		st.Faults().CutOff(s)
		start := time.Now()
		<-s.Done()
		require.Equal(t, 7500*time.Millisecond, time.Since(start))
		require.True(t, open(gone))
		require.Equal(t, []driver.Node{p.Node}, list(t, other))
		<-gone
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Empty(t, list(t, other))
		require.NoError(t, other.Err())
	})
}

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

func TestRequestsEndWithTheSessionThatIsCutOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		heal := st.Faults().CutOff(s)
		start := time.Now()
		_, err := s.Create(background, queue, prefix, nil)
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		require.Equal(t, 7500*time.Millisecond, time.Since(start))
		heal()
		synctest.Wait()
		require.Zero(t, st.Stats().Nodes, "a request arrived after the end of its session")
	})
}

func TestHealInTimeSavesTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		heal := st.Faults().CutOff(s)
		elapse(7 * time.Second)
		heal()
		elapse(time.Minute)
		require.NoError(t, s.Err())
		require.Equal(t, []driver.Node{p.Node}, list(t, s))
	})
}

func TestWatchEventsWaitWhileCutOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		p, q := create(t, other), create(t, other)
		first, second := watch(t, s, p.Name), watch(t, s, q.Name)
		heal := st.Faults().CutOff(s)
		require.NoError(t, other.Delete(background, queue, p))
		require.NoError(t, other.Delete(background, queue, q))
		require.True(t, open(first))
		require.True(t, open(second))
		require.Zero(t, st.Stats().Watches)
		heal()
		require.False(t, open(first))
		require.False(t, open(second))
	})
}

func TestCloseOfACutOffSessionIsBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		create(t, s)
		st.Faults().CutOff(s)
		start := time.Now()
		err := s.Close()
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, err, s.Close(), "it tries again")
		require.Equal(t, 4*time.Second, time.Since(start))
		require.Len(t, list(t, other), 1)
		elapse(6 * time.Second)
		require.Empty(t, list(t, other), "the store kept the session for longer than its timeout")
	})
}

func TestCloseThatFailedCanBeRepeated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		create(t, s)
		heal := st.Faults().CutOff(s)
		require.ErrorIs(t, s.Close(), driver.ErrUnavailable)
		require.Len(t, list(t, other), 1)
		heal()
		require.NoError(t, s.Close())
		require.Empty(t, list(t, other))
		require.NoError(t, s.Close(), "there is nothing left to do")
		require.Equal(t, int64(1), requests(st, memdriver.OpClose))
	})
}

func TestCloseAfterTheLeaseRanOutRemovesTheNodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		create(t, s)
		heal := st.Faults().CutOff(s)
		<-s.Done()
		heal()
		require.Len(t, list(t, other), 1)
		require.NoError(t, s.Close())
		require.Empty(t, list(t, other))
	})
}

func TestLostCreateIsCleanedUp(t *testing.T) {
	for _, committed := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T) {
			st := memdriver.New()
			s := connect(t, st)
			mine := create(t, s)
			st.Faults().LoseReply(s, memdriver.OpCreate, committed)
			_, err := s.Create(background, queue, prefix, nil)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.ErrorContains(t, err, `mem: create in "stock/42"`)
			synctest.Wait()
			require.Equal(t, []driver.Node{mine.Node}, list(t, s))
			require.Equal(t, int64(1), requests(st, memdriver.OpCleanUp))
			created := int64(1)
			if committed {
				created = 2
			}
			require.Equal(t, created, requests(st, memdriver.OpCreate))
			require.Equal(t, created, create(t, s).Seq)
		})
	}
}

func TestCleanUpIsRepeatedUntilItIsConfirmed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		st.Faults().LoseReply(s, memdriver.OpCreate, true)
		st.Faults().LoseReply(s, memdriver.OpCleanUp, false)
		st.Faults().LoseReply(s, memdriver.OpCleanUp, true)
		_, err := s.Create(background, queue, prefix, nil)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		synctest.Wait()
		require.Empty(t, list(t, s))
		require.Equal(t, int64(2), requests(st, memdriver.OpCleanUp), "one was lost on the way there, one on the way back, one got through")
	})
}

func TestCleanUpWaitsForTheStore(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		st.Faults().LoseReply(s, memdriver.OpCreate, true)
		_, err := s.Create(background, queue, prefix, nil)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		heal := st.Faults().CutOff(s)
		synctest.Wait()
		heal()
		synctest.Wait()
		require.Empty(t, list(t, other))
	})
}

// A Create that is given up while it is on its way is caught when it arrives,
// whether the clean-up comes after it or overtakes it.
func TestCreateOnItsWayIsCaught(t *testing.T) {
	for name, faster := range map[string]bool{"in order": false, "overtaken": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				st := memdriver.New()
				s, other := connect(t, st), connect(t, st)
				st.Faults().Delay(s, 4*time.Second)
				require.ErrorIs(t, withDeadline(time.Second, func(ctx context.Context) error {
					if faster {
						time.AfterFunc(time.Second/2, func() { st.Faults().Delay(s, time.Second) })
					}
					_, err := s.Create(ctx, queue, prefix, nil)
					return err
				}), context.DeadlineExceeded)
				require.Empty(t, list(t, other))
				elapse(5 * time.Second)
				require.Equal(t, int64(1), requests(st, memdriver.OpCreate), "the Create has not arrived")
				require.Equal(t, int64(1), requests(st, memdriver.OpCleanUp))
				require.Empty(t, list(t, other))
				require.Zero(t, st.Stats().Nodes)
				st.Faults().Delay(s, 0)
				create(t, s)
				require.Len(t, list(t, other), 1)
			})
		})
	}
}

func TestCreateGivenUpWhileCutOffIsCaught(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		heal := st.Faults().CutOff(s)
		require.ErrorIs(t, withDeadline(time.Second, func(ctx context.Context) error {
			_, err := s.Create(ctx, queue, prefix, nil)
			return err
		}), context.DeadlineExceeded)
		heal()
		synctest.Wait()
		require.Equal(t, int64(1), requests(st, memdriver.OpCreate), "the Create has not arrived")
		require.Empty(t, list(t, other))
		require.Zero(t, st.Stats().Nodes)
	})
}

func TestLostDeleteMayOrMayNotHaveHappened(t *testing.T) {
	for _, committed := range []bool{false, true} {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		st.Faults().LoseReply(s, memdriver.OpDelete, committed)
		require.ErrorIs(t, s.Delete(background, queue, p), driver.ErrUnavailable)
		if committed {
			require.ErrorIs(t, s.Delete(background, queue, p), driver.ErrGone)
		} else {
			require.NoError(t, s.Delete(background, queue, p))
		}
		require.Empty(t, list(t, s))
	}
}

func TestLostReplaceIsFinishedByItsRepeat(t *testing.T) {
	for _, committed := range []bool{false, true} {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		st.Faults().LoseReply(s, memdriver.OpReplace, committed)
		_, err := s.(driver.Replacer).Replace(background, queue, p, "web1-R-")
		require.ErrorIs(t, err, driver.ErrUnavailable)
		np, err := s.(driver.Replacer).Replace(background, queue, p, "web1-R-")
		require.NoError(t, err)
		require.Equal(t, []driver.Node{np.Node}, list(t, s))
		require.Equal(t, "web1-R-0000000000", np.Name)
	}
}

func TestLostWatchLeavesNothingArmed(t *testing.T) {
	for _, committed := range []bool{false, true} {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		st.Faults().LoseReply(s, memdriver.OpWatch, committed)
		_, err := s.Watch(background, queue, p.Name)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.Zero(t, st.Stats().Watches)
	}
}

func TestLostListAndCloseSaySo(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	st.Faults().LoseReply(s, memdriver.OpList, true)
	st.Faults().LoseReply(s, memdriver.OpList, false)
	st.Faults().LoseReply(s, memdriver.OpClose, true)
	for range 2 {
		_, err := s.List(background, queue)
		require.ErrorIs(t, err, driver.ErrUnavailable)
	}
	create(t, s)
	require.ErrorIs(t, s.Close(), driver.ErrUnavailable)
	require.Zero(t, st.Stats().Nodes)
}

func TestDelayTakesItsTimeBothWays(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		st.Faults().Delay(s, 2*time.Second)
		start := time.Now()
		p := create(t, s)
		require.Equal(t, 2*time.Second, time.Since(start))
		gone := watch(t, s, p.Name)
		require.Equal(t, 4*time.Second, time.Since(start))
		require.True(t, st.Faults().RemoveNode(queue, p.Name))
		<-gone
		require.Equal(t, 5*time.Second, time.Since(start), "the end of a watch takes one way")
		require.Empty(t, list(t, other))
		require.Equal(t, 5*time.Second, time.Since(start), "another session is not delayed")
		require.Error(t, withDeadline(time.Second, func(ctx context.Context) error {
			_, err := s.List(ctx, queue)
			return err
		}))
		require.Equal(t, 6*time.Second, time.Since(start))
		elapse(time.Minute)
		require.NoError(t, s.Err(), "a slow line cost the lease")
	})
}

func TestPausedProcessLearnsTheTruthFromErr(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		create(t, s)
		st.Faults().Pause(s, 10*time.Second)
		require.Empty(t, list(t, other), "the store kept a session that it had not heard of for its timeout")
		require.True(t, open(s.Done()), "no timer has run yet")
		require.ErrorIs(t, s.Err(), driver.ErrSessionEnded)
		require.False(t, open(s.Done()))
	})
}

func TestPauseWithinTheTimeoutIsSurvivedByTheStoreAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		create(t, s)
		st.Faults().Pause(s, 8*time.Second)
		_, err := s.Create(background, queue, prefix, nil)
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		require.Len(t, list(t, other), 1)
		elapse(2 * time.Second)
		require.Empty(t, list(t, other))
	})
}

func TestShortPauseIsSurvived(t *testing.T) {
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

func TestDownCutsEverybodyOff(t *testing.T) {
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
	require.PanicsWithValue(t, "memdriver: *memdriver.session is no session of this store", func() { st.Faults().Expire(s) })
	require.Panics(t, func() { st.Faults().CutOff(nil) })
	require.Panics(t, func() { memdriver.New().Faults().LoseReply(connect(t, st), memdriver.Op(99), true) })
}
