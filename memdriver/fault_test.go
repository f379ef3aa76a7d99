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

func TestExpireEndsTheSessionAndRemovesItsNodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		create(t, s)
		st.Faults().Expire(s)
		require.Empty(t, list(t, other))
		require.ErrorContains(t, s.Err(), "expired")
		require.NoError(t, s.Close())
		st.Faults().Expire(s) // a second Expire is a no-op
	})
}

func TestDroppedSessionEndsWithItsNextRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		w := watch(t, s, create(t, s))
		st.Faults().Drop(s)
		require.Empty(t, list(t, other))
		require.NoError(t, s.Err())
		require.True(t, open(w.C))
		_, err := s.Create(background, queue, newNode)
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		require.ErrorIs(t, s.Err(), driver.ErrSessionEnded)
		<-w.C
		require.Empty(t, list(t, other))
		st.Faults().Drop(s) // a second Drop is a no-op

		s = connect(t, st)
		begin := time.Now()
		st.Faults().Drop(s)
		<-s.Done()
		require.LessOrEqual(t, time.Since(begin), 10*time.Second/4, "no heartbeat has reached the store")
	})
}

func TestCutOffSessionEndsBeforeTheStoreDropsIt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		p := create(t, s)
		gone := watch(t, other, create(t, other), p.Node).C
		st.Faults().CutOff(s)
		start := time.Now()
		<-s.Done()
		require.Equal(t, 7500*time.Millisecond, time.Since(start))
		require.True(t, open(gone))
		require.Equal(t, p.Node, list(t, other)[0])
		<-gone
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Len(t, list(t, other), 1, "the node of the other session")
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
		_, err := s.Create(background, queue, newNode)
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		require.Equal(t, 7500*time.Millisecond, time.Since(start))
		heal()
		synctest.Wait()
		require.Zero(t, st.Stats().Nodes, "a request arrived after the end of its session")
	})
}

func TestNoticesWaitWhileCutOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		p, q := create(t, other), create(t, other)
		own := create(t, s)
		first, second := watch(t, s, own, p.Node).C, watch(t, s, own, q.Node).C
		heal := st.Faults().CutOff(s)
		require.NoError(t, other.Delete(background, queue, p, driver.Changed))
		require.NoError(t, other.Delete(background, queue, q, driver.Changed))
		require.True(t, open(first))
		require.True(t, open(second))
		require.Equal(t, 2, st.Stats().Watches)
		heal()
		require.False(t, open(first))
		require.False(t, open(second))
		require.Zero(t, st.Stats().Watches)
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
		require.Equal(t, err, s.Close(), "the second Close tries again")
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
		require.Equal(t, int64(1), requests(st, faults.OpClose))
	})
}

func TestLostCreateIsCleanedUp(t *testing.T) {
	for _, committed := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T) {
			st := memdriver.New()
			s := connect(t, st)
			mine := create(t, s)
			lose(st, s, faults.OpCreate, committed)
			behindMine := func([]driver.Node) int { return 0 }
			_, err := s.Create(background, queue, driver.NodeSpec{Prefix: prefix, Predecessor: behindMine})
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.ErrorContains(t, err, `mem: create in "stock/42"`)
			synctest.Wait()
			require.Equal(t, []driver.Node{mine.Node}, list(t, s))
			require.Zero(t, st.Stats().Watches)
			require.Equal(t, int64(1), requests(st, faults.OpCleanUp))
			created := int64(1)
			if committed {
				created = 2
			}
			require.Equal(t, created, requests(st, faults.OpCreate))
			require.Equal(t, created, create(t, s).Seq)
		})
	}
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

// If the caller of a Create gives up, the session asks the store to remove the
// node. No node may be left, whichever of the two requests arrives first.
func TestCreateOnItsWayIsCleanedUp(t *testing.T) {
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
					_, err := s.Create(ctx, queue, newNode)
					return err
				}), context.DeadlineExceeded)
				require.Empty(t, list(t, other))
				elapse(5 * time.Second)
				require.Equal(t, int64(1), requests(st, faults.OpCreate), "the Create has not arrived")
				require.Equal(t, int64(1), requests(st, faults.OpCleanUp))
				require.Empty(t, list(t, other))
				require.Zero(t, st.Stats().Nodes)
				st.Faults().Delay(s, 0)
				create(t, s)
				require.Len(t, list(t, other), 1)
			})
		})
	}
}

func TestResetLosesRequestsAndRepliesOnTheirWay(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for _, served := range []int64{0, 1} {
			st := memdriver.New()
			s, other := connect(t, st), connect(t, st)
			p, ahead := create(t, other), create(t, other)
			w := watch(t, s, create(t, s), ahead.Node)
			st.Faults().Delay(s, 2*time.Second)
			time.AfterFunc(time.Second/2+time.Duration(served)*time.Second, func() { st.Faults().Reset(s) })
			require.ErrorIs(t, s.Delete(background, queue, p, driver.Changed), driver.ErrUnavailable)
			require.Equal(t, served, requests(st, faults.OpDelete))
			st.Faults().Delay(s, 0)
			require.NoError(t, other.Delete(background, queue, ahead, driver.Changed))
			<-w.C
			require.NoError(t, s.Err())
			require.NoError(t, s.Close())
			require.NoError(t, other.Close())
		}
	})
}

func TestLostWatchLeavesNothingArmed(t *testing.T) {
	for _, committed := range []bool{false, true} {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		lose(st, s, faults.OpWatch, committed)
		_, err := s.Watch(background, queue, p)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.Zero(t, st.Stats().Watches)
	}
}

func TestLostListAndCloseReturnErrUnavailable(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	st.Faults().LoseReply(s, faults.OpList)
	st.Faults().LoseRequest(s, faults.OpList)
	st.Faults().LoseReply(s, faults.OpClose)
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
		// The first Reset loses a request in flight, the second a reply.
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

func TestErrReportsTheEndRightAfterAPause(t *testing.T) {
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

func lose(st *memdriver.Store, s driver.Session, op faults.Op, committed bool) {
	if committed {
		st.Faults().LoseReply(s, op)
	} else {
		st.Faults().LoseRequest(s, op)
	}
}
