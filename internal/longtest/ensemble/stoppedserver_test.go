package ensemble

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/recipes"
)

// After a long delay, the holder must give up although its session may survive.
func TestHolderOnServersWithSlowDisksIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	zktest.RequireSlowDisk(t)
	const timeout = 6 * time.Second
	e := zktest.StartEnsemble(t, 3, zktest.WithSlowDisk())
	slow := func(d time.Duration) {
		for _, s := range e.Servers {
			s.SetDiskDelay(d)
		}
	}
	at := dsn("/d?session_timeout="+timeout.String(), e.Addrs()...)
	h := contend(t, "q", at, at)

	slow(100 * time.Millisecond)
	for began := time.Now(); time.Since(began) < 3*timeout/2; time.Sleep(20 * time.Millisecond) {
		require.NoError(t, h.lock.Err(), "the disks are slow, but fast enough for the lease")
	}
	require.Empty(t, h.next)

	slow(3 * timeout / 2)
	select {
	case <-h.lock.Lost():
	case <-time.After(bound):
		t.Fatal("the holder has not learned of the loss")
	}
	slow(0)
	logMargins(t, "slow disks", margins(t, []*handover{h}))
}

// The test runs alone, because a holder without CPU time would lose its lock
// early.
func TestWaitersOnServersWhoseDisksStallJoinAgain(t *testing.T) {
	zktest.RequireSlowDisk(t)
	const waiters, timeout = 100, 6 * time.Second
	e := zktest.StartEnsemble(t, 3, zktest.WithSlowDisk())
	slow := func(d time.Duration) {
		for _, s := range e.Servers {
			s.SetDiskDelay(d)
		}
	}
	at := dsn("/d?session_timeout="+timeout.String(), e.Addrs()...)
	first, err := open(t, at).RWMutex("q").Lock(within(t))
	require.NoError(t, err)

	var joins, ends atomic.Int64
	start := make(chan struct{})
	close(start)
	crowd := &crowd{t: t}
	for range waiters {
		var joined atomic.Bool
		crowd.lock(open(t, at, dlock.WithTrace(&recipes.Trace{
			Waiting: func(context.Context, recipes.WaitingInfo) {
				if joined.CompareAndSwap(false, true) {
					joins.Add(1)
				}
			},
			SessionEnded: func(context.Context, recipes.SessionEndedInfo) { ends.Add(1) },
		})).RWMutex("q"), start)
	}
	eventually(t, "all wait", func() bool { return joins.Load() == waiters })
	slow(3 * timeout / 2)
	eventually(t, "the leases of all waiters have ended", func() bool { return ends.Load() == waiters })
	require.Zero(t, crowd.held.Load())
	require.Error(t, first.Err())
	began := time.Now()
	slow(0)
	crowd.Wait()
	t.Logf("%d waiters joined again and had the lock within %v", crowd.held.Load(), time.Since(began).Round(time.Millisecond))
	require.EqualValues(t, waiters, crowd.held.Load())
}
