package zkdriver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/zktest"
)

// leaseFixture is a lease of an hour with a clock that the test moves.
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
	r := leaseFixture{newKeepalive(newSchedule(hour, hour/4, 0, 1), lease, func() Duty { return Idle }), t}
	r.connected(asked, lease.Now())
	return r
}

func (r leaseFixture) pass(d time.Duration) { leasehook.Skew(r.lease, d) }

func (r leaseFixture) answer(p reach) {
	now := r.lease.Now()
	r.answered(r.connection(), p, now, now, false)
}

func TestSyncCountsTheRequestAQuarterEarlier(t *testing.T) {
	r := newLeaseFixture(t)
	r.pass(hour / 3)
	r.answer(toServer)
	r.pass(hour / 4)
	r.answer(toLeader) // proves the read
	r.pass(hour/2 - time.Minute)
	require.NoError(t, r.lease.Err())
	r.pass(2 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestSyncDoesNotCountWhatIsMoreRecent(t *testing.T) {
	r := newLeaseFixture(t)
	r.pass(hour / 3)
	r.answer(toServer)
	r.pass(hour/4 - 2*time.Minute)
	r.answer(toLeader)
	r.pass(13 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestReadsRenewNothing(t *testing.T) {
	r := newLeaseFixture(t)
	for range 76 {
		r.pass(time.Minute)
		r.answer(toServer)
	}
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
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
	_, wait, ok := r.schedule.due(r.lease.Now(), Idle)
	require.True(t, ok)
	require.Zero(t, wait, "a heartbeat is due at once")
	r.answer(toServer)
	r.answer(toLeader)
	r.pass(hour*3/4 - time.Minute)
	require.NoError(t, r.lease.Err())
	r.pass(2 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestASyncRenewsTheLeaseOfAHolderUpToItsLatestWrite(t *testing.T) {
	for _, p := range []reach{toLeader, toQuorum} {
		r := newLeaseFixture(t)
		r.duty = func() Duty { return Holding }
		r.pass(hour / 3)
		r.answer(p)
		r.pass(hour / 8)
		r.answer(toServer)
		r.pass(hour / 4)
		r.answer(toLeader) // proves the read, which is later than the write
		r.pass(hour*3/8 - time.Minute)
		require.Equal(t, p == toQuorum, r.lease.Err() == nil)
		r.pass(2 * time.Minute)
		require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
	}
}

func TestOnANewConnectionALeaseOfAHolderStandsStillUntilAWriteIsAnswered(t *testing.T) {
	for _, p := range []reach{toLeader, toQuorum} {
		r := newLeaseFixture(t)
		r.duty = func() Duty { return Holding }
		r.pass(hour / 2)
		asked := r.lease.Now()
		r.connected(asked, asked)
		what, _, _ := r.schedule.due(asked, Holding)
		require.Equal(t, toQuorum, what, "the first heartbeat is a write")
		r.answer(p)
		r.pass(hour / 3)
		require.Equal(t, p == toQuorum, r.lease.Err() == nil)
	}
}

// The weaker proof is enough for a session that owns nothing. It is not for the
// node that the session makes next.
func TestLeaseIsSetBackWhenTheSessionComesToOwnANode(t *testing.T) {
	r := newLeaseFixture(t)
	for range 12 {
		r.pass(hour / 8)
		r.answer(toLeader)
	}
	require.NoError(t, r.lease.Err())
	r.duty = func() Duty { return Holding }
	require.ErrorIs(t, r.hold(), driver.ErrUnavailable, "the latest write was long ago")
	r.duty = func() Duty { return Idle }
	sent := r.lease.Now()
	for range 4 { // the write leaves late, behind syncs that renew the loose lease
		r.pass(hour / 8)
		r.answer(toLeader)
	}
	r.duty = func() Duty { return Holding }
	r.answered(r.connection(), toQuorum, sent, r.lease.Now(), false)
	require.NoError(t, r.hold())
	r.pass(hour/4 - time.Minute)
	require.NoError(t, r.lease.Err())
	r.pass(2 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

// A Create may be answered on another connection than the one it was sent on.
func TestANodeNeedsAWriteThatWasAnsweredOnThePresentConnection(t *testing.T) {
	r := newLeaseFixture(t)
	asked := r.lease.Now()
	r.connected(asked, asked)
	r.duty = func() Duty { return Holding }
	require.ErrorIs(t, r.hold(), errNoWrite)
	r.answer(toQuorum)
	require.NoError(t, r.hold())
}

// Syncs renew the lease of a holder as far as its latest write.
func TestASessionThatOwnsNodesSendsAWriteNowAndThen(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=2s")
	p := b.mustCreate("q", "h-W-", "x")
	writes, syncs := b.proxy.Frames(zktest.OpMulti), b.proxy.Frames(zktest.OpSync)
	eventually(t, "five heartbeats that are writes", func() bool {
		require.NoError(t, b.Err())
		return b.proxy.Frames(zktest.OpMulti) >= writes+5
	})
	require.Greater(t, b.proxy.Frames(zktest.OpSync), syncs)
	require.Zero(t, b.proxy.Frames(zktest.OpPing))
	require.NoError(t, b.Err())
	require.NoError(t, b.Delete(within(t), "q", p, driver.Changed))
}

// One heartbeat is one request, whatever the session owns and waits for.
func TestHeartbeatsCostTheSameHoweverMuchThereIsToKeep(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=2s")
	other := b.another("")
	for i := range 200 {
		queue := fmt.Sprint("q", i%10)
		p, err := create(within(t), other, queue, "h-W-", []byte("x"))
		require.NoError(t, err)
		b.mustCreate(queue, "h-W-", "x")
		b.mustWatch(within(t), queue, p.Name)
	}
	before, kept := map[int32]int{}, b.proxy.Frames(zktest.OpMulti)
	idle := []int32{zktest.OpCreate, zktest.OpDelete, zktest.OpExists, zktest.OpGetData, zktest.OpSetData, zktest.OpGetChildren2, zktest.OpPing}
	for _, op := range idle {
		before[op] = b.proxy.Frames(op)
	}
	eventually(t, "it has sent ten heartbeats", func() bool { return b.proxy.Frames(zktest.OpMulti) >= kept+10 })
	for _, op := range idle {
		require.Equal(t, before[op], b.proxy.Frames(op), "operation %d", op)
	}
}

func TestIdleSessionLivesOn(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=2s")
	before := b.proxy.Frames(zktest.OpSync)
	eventually(t, "it has sent thirty heartbeats, or has ended", func() bool {
		return b.proxy.Frames(zktest.OpSync)-before >= 30 || b.Err() != nil
	})
	require.NoError(t, b.Err())
}

func TestSessionEndsBeforeTheServerLetsGo(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=2s")
	p := b.mustCreate("q", "h-W-", "x")
	gone, err := watchName(within(t), b.another(""), "q", p.Name)
	require.NoError(t, err)
	b.proxy.Cut()
	select {
	case <-b.Done():
	case <-gone:
		t.Fatal("the store let go first")
	case <-time.After(bound):
		t.Fatal("the session did not end")
	}
	ended(t, gone)
	require.ErrorIs(t, b.Err(), driver.ErrSessionEnded)
	require.ErrorIs(t, b.Close(), driver.ErrUnavailable)
}

// A follower that has lost its leader answers for ten seconds here what it can answer alone.
func TestServerWithoutItsLeaderDoesNotKeepASessionAlive(t *testing.T) {
	t.Parallel()
	e := zktest.StartEnsemble(t, 3, zktest.WithConfig(map[string]string{"syncLimit": "20"}))
	follower, leader := e.Follower(t), e.Leader(t)
	s := mustConnect(t, "zk://"+e.Servers[follower].Addr()+"?session_timeout=3s")
	other := mustConnect(t, "zk://"+e.Servers[leader].Addr())
	p, err := create(within(t), s, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	gone, err := watchName(within(t), other, "q", p.Name)
	require.NoError(t, err)
	e.CutServer(follower)
	stop := make(chan struct{})
	reads := make(chan int, 1)
	go func() { // what the follower answers must not help
		n := 0
		defer func() { reads <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if _, err := s.List(ctx, "q"); err == nil {
				n++
			}
			cancel()
		}
	}()
	select {
	case <-s.Done():
	case <-gone:
		t.Error("the store let go first")
	case <-time.After(bound):
		t.Error("the session did not end")
	}
	close(stop)
	require.Positive(t, <-reads)
	ended(t, gone)
}

func TestMarginOrTickBeyondWhatTheServerGrantsIsRefused(t *testing.T) {
	server := zktest.Shared(t)
	for _, parameter := range []string{"lease_margin", "tick_time"} {
		_, err := dsnConnect(t, "zk://"+server.Addr()+"?session_timeout=1h&"+parameter+"=20m") // ten minutes is the server's most
		require.ErrorContains(t, err, parameter+" is more than half of the timeout that the server grants a session: half of 10m0s")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
}
