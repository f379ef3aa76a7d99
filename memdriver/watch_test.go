package memdriver_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

func TestWatchEndsWithItsNodes(t *testing.T) {
	for how, end := range map[string]func(st *memdriver.Store, s driver.Session, p driver.Place){
		"deleted": func(_ *memdriver.Store, s driver.Session, p driver.Place) {
			_ = s.Delete(background, queue, p, driver.Changed)
		},
		"closed":        func(_ *memdriver.Store, s driver.Session, _ driver.Place) { _ = s.Close() },
		"expired":       func(st *memdriver.Store, s driver.Session, _ driver.Place) { st.Faults().Expire(s) },
		"node removed":  func(st *memdriver.Store, _ driver.Session, p driver.Place) { st.Faults().RemoveNode(queue, p.Name) },
		"queue removed": func(st *memdriver.Store, _ driver.Session, _ driver.Place) { st.Faults().RemoveQueue(queue) },
		"timed out": func(st *memdriver.Store, s driver.Session, _ driver.Place) {
			st.Faults().CutOff(s)
			elapse(10 * time.Second)
		},
		"replaced": func(_ *memdriver.Store, s driver.Session, p driver.Place) {
			_, _ = s.Replace(background, queue, p, "web1-R-")
		},
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				st := memdriver.New()
				s, other := connect(t, st), connect(t, st)
				p, own := create(t, s), create(t, other)
				ahead, alone := watch(t, other, own, p.Node), watch(t, other, own)
				membership := watchQueue(t, other, queue)
				require.True(t, open(ahead.C))
				require.True(t, open(membership.C))
				end(st, s, p)
				require.Equal(t, driver.Changed, <-ahead.C)
				require.Equal(t, driver.Changed, <-membership.C)
				require.Equal(t, how != "queue removed", open(alone.C))
			})
		})
	}
}

func TestWatchOfAMissingNodeHasEndedOnReturn(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	gone, there, own := create(t, s), create(t, s), create(t, s)
	require.NoError(t, s.Delete(background, queue, gone, driver.Changed))
	namesake := own
	namesake.Token++
	elsewhere, err := s.Watch(background, "no/such/queue", own)
	require.NoError(t, err)
	for name, w := range map[string]driver.Watch{
		"own node":         watch(t, s, gone),
		"node ahead":       watch(t, s, own, gone.Node),
		"one of two ahead": watch(t, s, own, there.Node, gone.Node),
		"namesake":         watch(t, s, namesake),
		"queue":            elsewhere,
	} {
		select {
		case why := <-w.C:
			require.Equal(t, driver.Changed, why, name)
		default:
			require.Fail(t, "the watch goes on", name)
		}
	}
	require.Zero(t, st.Stats().Watches)
	require.Equal(t, 1, st.Stats().Queues)
}

func TestWatchByNameIsOfAnyNodeWithTheName(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := connect(t, memdriver.New())
		p := create(t, s)
		w := watch(t, s, driver.Place{Node: driver.Node{Name: p.Name}})
		require.True(t, open(w.C))
		require.NoError(t, s.Delete(background, queue, p, driver.Changed))
		require.False(t, open(w.C))
	})
}

func TestWatchOfTheQueueEndsOnTheNextChange(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		w := watchQueue(t, s, queue) // the queue does not exist yet
		require.True(t, open(w.C))
		p := create(t, s)
		require.False(t, open(w.C))
		w = watchQueue(t, s, queue)
		require.True(t, open(w.C))
		require.NoError(t, s.Delete(background, queue, p, driver.Released))
		require.Equal(t, driver.Changed, <-w.C, "a watch of the queue says nothing of its nodes")
		w = watchQueue(t, s, queue)
		require.NoError(t, st.Faults().PutNode(queue, "guest-0000000007", nil))
		require.False(t, open(w.C))
		w = watchQueue(t, s, queue)
		require.True(t, st.Faults().RemoveQueue(queue))
		require.False(t, open(w.C))
	})
}

// When a node ahead is released, a waiter's watch sends Released exactly once,
// even on a slow connection. After that it ends only when the waiter's own node
// is removed (rule 13 of package driver).
func TestReleasedIsSentToTheWaitersBehind(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		inVirtualTime(t, func(t *testing.T) {
			st := memdriver.New()
			holder, waiter := connect(t, st), connect(t, st)
			st.Faults().Delay(waiter, delay)
			first, second := create(t, holder), create(t, holder)
			own := create(t, waiter)
			w := watch(t, waiter, own, first.Node, second.Node)
			require.NoError(t, holder.Delete(background, queue, first, driver.Released))
			require.Equal(t, driver.Released, <-w.C)
			require.NoError(t, holder.Delete(background, queue, second, driver.Released))
			require.True(t, open(w.C))
			elapse(delay)
			require.True(t, open(w.C), "the watch did not go on for the own node alone")
			require.True(t, st.Faults().RemoveNode(queue, own.Name))
			why, more := <-w.C
			require.Equal(t, driver.Changed, why)
			require.False(t, more)
			w.Stop()
			require.Zero(t, st.Stats().Watches)
		})
	}
}

func TestReleasedIsNotSentAfterTheEndOfTheOwnNode(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second} {
		inVirtualTime(t, func(t *testing.T) {
			st := memdriver.New()
			holder, waiter := connect(t, st), connect(t, st)
			held := create(t, holder)
			st.Faults().Delay(waiter, delay)
			own := create(t, waiter)
			w := watch(t, waiter, own, held.Node)
			require.True(t, st.Faults().RemoveNode(queue, own.Name))
			if delay > 0 {
				// The delay ends while the notice of the removal is in flight.
				// The notice of the release must not overtake it.
				st.Faults().Delay(waiter, 0)
			}
			require.NoError(t, holder.Delete(background, queue, held, driver.Released))
			why, more := <-w.C
			require.Equal(t, driver.Changed, why)
			require.False(t, more)
		})
	}
}

func TestOnlyTheOwnerReleases(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		holder, waiter := connect(t, st), connect(t, st)
		held := create(t, holder)
		w := watch(t, waiter, create(t, waiter), held.Node)
		require.ErrorContains(t, waiter.Delete(background, queue, held, driver.Released), "belongs to another session")
		require.True(t, open(w.C))
		require.NoError(t, waiter.Delete(background, queue, held, driver.Changed))
		require.Equal(t, driver.Changed, <-w.C)
	})
}

// The store adds the node and arms the watch at once, so that no change is
// missed while the reply is in flight.
func TestCreateArmsTheWatchOfThePredecessor(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		none, err := other.Create(background, queue, driver.NodeSpec{Prefix: prefix, Predecessor: func(ahead []driver.Node) int {
			require.Empty(t, ahead)
			return -1
		}})
		require.NoError(t, err)
		require.Zero(t, none.Watch)
		first := create(t, other)

		st.Faults().Delay(s, 2*time.Second)
		time.AfterFunc(1500*time.Millisecond, func() { st.Faults().RemoveNode(queue, first.Name) })
		j, err := s.Create(background, queue, driver.NodeSpec{Prefix: prefix, Predecessor: func(ahead []driver.Node) int {
			require.Equal(t, []driver.Node{none.Node, first.Node}, ahead)
			return 1
		}})
		require.NoError(t, err)
		require.Equal(t, []driver.Node{none.Node, first.Node}, j.Ahead)
		require.True(t, open(j.Watch.C), "the notice takes a second")
		elapse(time.Second)
		require.False(t, open(j.Watch.C))
		require.Zero(t, requests(st, faults.OpWatch))
	})
}

func TestEndOfTheSessionEndsItsWatches(t *testing.T) {
	for how, end := range map[string]func(st *memdriver.Store, s driver.Session){
		"closed":    func(_ *memdriver.Store, s driver.Session) { _ = s.Close() },
		"expired":   func(st *memdriver.Store, s driver.Session) { st.Faults().Expire(s) },
		"cut off":   func(st *memdriver.Store, s driver.Session) { st.Faults().CutOff(s); <-s.Done() },
		"paused":    func(st *memdriver.Store, s driver.Session) { st.Faults().Pause(s, time.Minute); _ = s.Err() },
		"timed out": func(st *memdriver.Store, _ driver.Session) { st.Faults().Down(); elapse(time.Minute) },
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				st := memdriver.New()
				s := connect(t, st)
				node, membership := watch(t, s, create(t, s)), watchQueue(t, s, queue)
				end(st, s)
				require.False(t, open(node.C))
				require.False(t, open(membership.C))
				require.Zero(t, st.Stats().Watches)
			})
		})
	}
}

func TestStopFreesTheWatch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		ctx, cancel := context.WithCancel(background)
		var watches []driver.Watch
		for range 100 {
			node, err := s.Watch(ctx, queue, p)
			require.NoError(t, err)
			membership, err := s.WatchQueue(ctx, "unused")
			require.NoError(t, err)
			watches = append(watches, node, membership)
		}
		cancel()
		synctest.Wait()
		require.Equal(t, 200, st.Stats().Watches)
		for range 2 {
			for _, w := range watches {
				w.Stop()
			}
			require.Zero(t, st.Stats().Watches)
		}
		require.NoError(t, s.Delete(background, queue, p, driver.Changed))
		require.NoError(t, s.Close())
		watches[0].Stop()
	})
}

func TestWatchesTakeNoGoroutines(t *testing.T) {
	s := connect(t, memdriver.New())
	p := create(t, s)
	before := runtime.NumGoroutine()
	for range 1000 {
		watch(t, s, p)
	}
	require.Less(t, runtime.NumGoroutine(), before+100)
}

func TestNoticeArrivesAsTheSessionEnds(t *testing.T) {
	for range 100 {
		inVirtualTime(t, func(t *testing.T) {
			st := memdriver.New()
			s, other := connect(t, st), connect(t, st)
			p := create(t, other)
			w := watch(t, s, create(t, s), p.Node)
			st.Faults().Delay(s, 2*time.Second)
			time.AfterFunc(time.Second, func() { _ = s.Close() })
			require.NoError(t, other.Delete(background, queue, p, driver.Changed))
			<-w.C
			elapse(time.Minute)
		})
	}
}

func TestWatchMissesNothingWhileItsReplyIsOnItsWay(t *testing.T) {
	for _, whole := range []bool{false, true} {
		inVirtualTime(t, func(t *testing.T) {
			st := memdriver.New()
			s, other := connect(t, st), connect(t, st)
			ahead, own := create(t, other), create(t, s)
			st.Faults().Delay(s, 2*time.Second)
			time.AfterFunc(1500*time.Millisecond, func() { st.Faults().RemoveNode(queue, ahead.Name) })
			var w driver.Watch
			if whole {
				w = watchQueue(t, s, queue)
			} else {
				w = watch(t, s, own, ahead.Node)
			}
			require.True(t, open(w.C), "the notice takes a second")
			elapse(time.Second)
			require.False(t, open(w.C))
		})
	}
}
