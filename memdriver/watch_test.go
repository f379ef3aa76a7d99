package memdriver_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

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
