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

// rig is a lease of an hour with a clock that the test moves.
type rig struct {
	*beats
	t *testing.T
}

const hour = time.Hour

func newRig(t *testing.T) rig {
	asked := driver.Now()
	lease := driver.NewLease(hour*3/4, asked)
	t.Cleanup(func() { lease.End(nil) })
	r := rig{newBeats(hour, lease, func() bool { return false }), t}
	r.connected(asked, lease.Now(), false)
	return r
}

func (r rig) pass(d time.Duration) { leasehook.Skew(r.lease, d) }

func (r rig) answer(p part) {
	now := r.lease.Now()
	r.answered(r.present(), p, now, now)
}

func TestSyncCountsTheRequestAQuarterEarlier(t *testing.T) {
	r := newRig(t)
	r.pass(hour / 3)
	r.answer(server)
	r.pass(hour / 4)
	r.answer(leader) // proves the read
	r.pass(hour/2 - time.Minute)
	require.NoError(t, r.lease.Err())
	r.pass(2 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestSyncDoesNotCountWhatIsMoreRecent(t *testing.T) {
	r := newRig(t)
	r.pass(hour / 3)
	r.answer(server)
	r.pass(hour/4 - 2*time.Minute)
	r.answer(leader)
	r.pass(13 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestReadsRenewNothing(t *testing.T) {
	r := newRig(t)
	for range 76 {
		r.pass(time.Minute)
		r.answer(server)
	}
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestRequestsOfAnEarlierConnectionRenewNothing(t *testing.T) {
	r := newRig(t)
	r.pass(hour / 2)
	r.answer(server)
	old := r.present()
	asked := r.lease.Now()
	r.connected(asked, asked, true)
	r.pass(hour / 8)
	now := r.lease.Now()
	r.answered(old, quorum, now, now)
	r.pass(hour/8 + time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestAConnectRequestCountsOnceALaterProofIsAnswered(t *testing.T) {
	r := newRig(t)
	r.pass(hour / 2)
	asked := r.lease.Now()
	r.connected(asked, asked, true)
	require.LessOrEqual(t, r.due(r.lease.Now()), time.Duration(0), "a heartbeat is due at once")
	r.answer(server)
	r.answer(leader)
	r.pass(hour*3/4 - time.Minute)
	require.NoError(t, r.lease.Err())
	r.pass(2 * time.Minute)
	require.ErrorIs(t, r.lease.Err(), driver.ErrSessionEnded)
}

func TestOnlyWritesCountForASessionThatOwnsNodes(t *testing.T) {
	for _, p := range []part{leader, quorum} {
		r := newRig(t)
		r.strict = func() bool { return true }
		for range 16 {
			r.pass(r.interval())
			r.answer(p)
		}
		require.Equal(t, p == quorum, r.lease.Err() == nil)
	}
}

func TestASessionThatOwnsNodesProvesItsLeaseByWrites(t *testing.T) {
	t.Parallel()
	for _, heartbeat := range []string{"write", "sync"} {
		b := newBench(t, "session_timeout=1s&heartbeat="+heartbeat)
		p := b.mustCreate("q", "h-W-", "x")
		used, other := zktest.OpMulti, zktest.OpSync
		if heartbeat == "sync" {
			used, other = other, used
		}
		before := b.proxy.Frames(other)
		eventually(t, "it has sent ten heartbeats", func() bool { return b.proxy.Frames(used) >= 11 })
		require.Equal(t, before, b.proxy.Frames(other))
		require.NoError(t, b.Err())
		require.NoError(t, b.Delete(within(t), "q", p))
	}
}

// One heartbeat is one request, whatever the session owns and waits for.
func TestHeartbeatsCostTheSameHoweverMuchThereIsToKeep(t *testing.T) {
	t.Parallel()
	b := newBench(t, "session_timeout=2s")
	other := b.another("")
	for i := range 200 {
		queue := fmt.Sprint("q", i%10)
		p, err := other.Create(within(t), queue, "h-W-", []byte("x"))
		require.NoError(t, err)
		b.mustCreate(queue, "h-W-", "x")
		b.mustWatch(within(t), queue, p.Name)
	}
	before, kept := map[int32]int{}, b.proxy.Frames(zktest.OpMulti)
	idle := []int32{zktest.OpCreate, zktest.OpDelete, zktest.OpExists, zktest.OpGetData, zktest.OpSetData, zktest.OpGetChildren2, zktest.OpSync}
	for _, op := range idle {
		before[op] = b.proxy.Frames(op)
	}
	eventually(t, "it has sent ten heartbeats", func() bool { return b.proxy.Frames(zktest.OpMulti) >= kept+10 })
	for _, op := range idle {
		require.Equal(t, before[op], b.proxy.Frames(op), "operation %d", op)
	}
}

func TestHeartbeatsKeepTheLeaseAtHalfTheTimeoutOrMore(t *testing.T) {
	for _, busy := range []bool{false, true} {
		r := newRig(t)
		for range 100 {
			r.pass(r.interval())
			if busy {
				for range 20 {
					r.answer(leader)
				}
			}
			r.answer(leader)
		}
		r.pass(hour * 3 / 8)
		require.NoError(t, r.lease.Err(), "busy %v", busy)
		r.pass(hour / 4)
		require.Error(t, r.lease.Err(), "busy %v", busy)
	}
}

func TestIdleSessionLivesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, "session_timeout=1s")
	before := b.proxy.Frames(zktest.OpSync)
	eventually(t, "it has sent thirty heartbeats", func() bool { return b.proxy.Frames(zktest.OpSync)-before >= 30 })
	require.NoError(t, b.Err())
}

func TestSessionEndsBeforeTheServerLetsGo(t *testing.T) {
	t.Parallel()
	b := newBench(t, "session_timeout=2s")
	p := b.mustCreate("q", "h-W-", "x")
	gone, err := b.another("").Watch(within(t), "q", p.Name)
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
	p, err := s.Create(within(t), "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	gone, err := other.Watch(within(t), "q", p.Name)
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

func TestMarginBeyondWhatTheServerGrantsIsRefused(t *testing.T) {
	server := zktest.Shared(t)
	_, err := dsnConnect(t, "zk://"+server.Addr()+"?session_timeout=1h&lease_margin=20m") // ten minutes is the server's most
	require.ErrorContains(t, err, "lease_margin")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}
