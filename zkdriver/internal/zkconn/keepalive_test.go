package zkconn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
)

// leaseFixture is a keepalive whose lease has a clock that the test advances.
type leaseFixture struct {
	*keepalive
	t *testing.T
}

const hour = time.Hour

func newLeaseFixture(t *testing.T) leaseFixture {
	asked := driver.Now()
	lease := driver.NewLease(hour, hour/4)
	lease.Renew(asked)
	t.Cleanup(func() { lease.End(nil) })
	r := leaseFixture{newKeepalive(newSchedule(hour, hour/4, 0, 1), lease, func() bool { return false }), t}
	r.connected(asked, lease.Now())
	return r
}

func (r leaseFixture) pass(d time.Duration) { leasehook.Skew(r.lease, d) }

func (r leaseFixture) answer(p reach) {
	now := r.lease.Now()
	r.answered(r.connection(), p, now, now, false)
}

func TestRequestsOfAnEarlierConnectionRenewNothing(t *testing.T) {
	r := newLeaseFixture(t)
	r.pass(hour / 2)
	r.answer(toServer)
	old := r.connection()
	asked := r.lease.Now()
	r.connected(asked, asked)
	r.pass(hour / 8)
	now := r.lease.Now()
	r.answered(old, toQuorum, now, now, false)
	r.pass(hour/8 + time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestAConnectRequestCountsOnceALaterProofIsAnswered(t *testing.T) {
	r := newLeaseFixture(t)
	r.pass(hour / 2)
	asked := r.lease.Now()
	r.connected(asked, asked)
	_, wait, ok := r.schedule.due(r.lease.Now(), false)
	require.True(t, ok)
	require.Zero(t, wait, "a heartbeat is due at once")
	r.answer(toServer)
	r.answer(toLeader)
	r.pass(hour*3/4 - time.Minute)
	require.NoError(t, r.lease.Err())
	r.pass(2 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestOnANewConnectionOnlyAWriteRenewsTheLeaseOfASessionWithNodes(t *testing.T) {
	for _, p := range []reach{toLeader, toQuorum} {
		r := newLeaseFixture(t)
		r.hasNodes = func() bool { return true }
		r.pass(hour / 2)
		asked := r.lease.Now()
		r.connected(asked, asked)
		what, _, _ := r.schedule.due(asked, true)
		require.Equal(t, toQuorum, what, "the first heartbeat is a write")
		r.answer(p)
		r.pass(hour / 3)
		require.Equal(t, p == toQuorum, r.lease.Err() == nil)
	}
}

// Once the session has a node, its lease no longer counts from Syncs.
func TestTheFirstNodeSetsTheLeaseBack(t *testing.T) {
	r := newLeaseFixture(t)
	for range 12 {
		r.pass(hour / 8)
		r.answer(toLeader)
	}
	require.NoError(t, r.lease.Err())
	r.hasNodes = func() bool { return true }
	require.ErrorIs(t, r.countFromWrite(), driver.ErrUnavailable, "the latest write was long ago")
	r.hasNodes = func() bool { return false }
	sent := r.lease.Now()
	for range 4 { // sent after the write that is answered below
		r.pass(hour / 8)
		r.answer(toLeader)
	}
	r.hasNodes = func() bool { return true }
	r.answered(r.connection(), toQuorum, sent, r.lease.Now(), false)
	require.NoError(t, r.countFromWrite())
	r.pass(hour/4 - time.Minute)
	require.NoError(t, r.lease.Err())
	r.pass(2 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

// Answers on an earlier connection prove nothing.
func TestANodeNeedsAWriteThatWasAnsweredOnThePresentConnection(t *testing.T) {
	r := newLeaseFixture(t)
	asked := r.lease.Now()
	r.connected(asked, asked)
	r.hasNodes = func() bool { return true }
	require.ErrorIs(t, r.countFromWrite(), errNoWrite)
	r.answer(toQuorum)
	require.NoError(t, r.countFromWrite())
}
