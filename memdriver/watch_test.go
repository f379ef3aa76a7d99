package memdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
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
				// The notice of the release must not overtake the notice of the
				// removal.
				st.Faults().Delay(waiter, 0)
			}
			require.NoError(t, holder.Delete(background, queue, held, driver.Released))
			why, more := <-w.C
			require.Equal(t, driver.Changed, why)
			require.False(t, more)
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

func TestAWatchWithoutAnAnswerIsNotArmed(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	p := create(t, s)
	for _, lose := range []func(driver.Session, faults.Op){st.Faults().LoseRequest, st.Faults().LoseReply} {
		lose(s, faults.OpWatch)
		_, err := s.Watch(background, queue, p)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		lose(s, faults.OpWatchQueue)
		_, err = s.WatchQueue(background, queue)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.Zero(t, st.Stats().Watches)
	}
}
