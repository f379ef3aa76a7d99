package sqlite

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Tests can't set the machine's clock, so they move leases and deadlines
// instead.

// stepClock acts like a clock set forward by d, or back if d is negative.
func stepClock(t *testing.T, d time.Duration, sessions ...*session.Session) {
	for _, s := range sessions {
		dlocktest.SkewLease(s.Lease(), d)
	}
	operate(t, memberOf(sessions[0]).path, "UPDATE dlock_session SET deadline = deadline - ?", d.Microseconds())
}

// pass makes the session look as if it had sent no heartbeat for d.
func pass(t *testing.T, d time.Duration, s *session.Session) {
	operate(t, memberOf(s).path, "UPDATE dlock_session SET deadline = deadline - ?1, until = until - ?1", d.Microseconds())
}

// A clock set forward must end the holder's lease before it frees the lock.
func TestAStepForwardLeavesOneHolder(t *testing.T) {
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), time.Hour)
	holder := connect(t, st)
	held := create(t, holder)

	stepClock(t, 30*time.Minute, holder)
	require.NoError(t, holder.Err(), "a step that is shorter than the session timeout")
	next := connect(t, st)
	list, err := next.List(t.Context(), "q")
	require.NoError(t, err)
	require.Len(t, list, 1)

	stepClock(t, time.Hour, holder, next)
	require.ErrorIs(t, holder.Err(), driver.ErrSessionEnded)
	require.ErrorIs(t, next.Err(), driver.ErrSessionEnded)
	if boot, _ := bootClock(time.Now()); boot != "" {
		list, err = connect(t, st).List(t.Context(), "q")
		require.NoError(t, err)
		require.Len(t, list, 1, "the clock of the boot was not set")
		pass(t, time.Hour, holder)
	}
	joined, err := connect(t, st).Create(t.Context(), "q", driver.NodeSpec{Prefix: "b-W-"})
	require.NoError(t, err)
	require.Empty(t, joined.Ahead)
	require.Greater(t, joined.Token, held.Token)
}

// Although deadlines are now a day ahead, a killed process must lose its lock.
func TestAStepBackLosesNoLock(t *testing.T) {
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), time.Hour)
	killed, other := connect(t, st), connect(t, st)
	held := create(t, killed)

	stepClock(t, -24*time.Hour, killed, other)
	require.NoError(t, killed.Err())
	require.NoError(t, other.Err())
	_, err := memberOf(killed).Beat(t.Context())
	require.NoError(t, err)
	behind := create(t, other)
	require.Equal(t, []driver.Node{held.Node}, behind.Ahead)
	require.Greater(t, behind.Token, held.Token)

	stepClock(t, -24*time.Hour, killed, other)
	die(t, killed)
	list, err := other.List(t.Context(), "q")
	require.NoError(t, err)
	require.Equal(t, []driver.Node{behind.Node}, list)
}

// A stopped holder's file stays locked, so only the deadline ends its session.
func TestAfterAStepBackAStoppedHolderLosesItsLockInTime(t *testing.T) {
	if boot, _ := bootClock(time.Now()); boot == "" && runtime.GOOS != "linux" {
		t.Skip("this system has no clock that cannot be set")
	}
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), time.Hour)
	stopped, other := connect(t, st), connect(t, st)
	held := create(t, stopped)

	stepClock(t, -time.Hour, stopped, other)
	info, err := other.Read(t.Context(), "q", held.Name)
	require.NoError(t, err)
	require.LessOrEqual(t, info.SessionLeft, time.Hour)
	pass(t, time.Hour, stopped)
	_, err = memberOf(other).Expire(t.Context())
	require.NoError(t, err)
	list, err := other.List(t.Context(), "q")
	require.NoError(t, err)
	require.Empty(t, list)
}
