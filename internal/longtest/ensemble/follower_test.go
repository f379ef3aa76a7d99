package ensemble

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

// A follower that has lost its leader answers reads for a while (syncLimit),
// although the leader expires the sessions of its clients. A holder on the
// follower must learn of the loss before the lock is granted to a client of the
// majority.
func TestHolderOnAFollowerThatLostItsLeaderIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	const rounds, holders, timeout = 5, 4, 3 * time.Second
	e := ensemble(t, 60) // syncLimit of 30s
	follower := e.Follower(t)
	var all []time.Duration
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			r := newFollowerRound(t, e, follower, fmt.Sprint("/r", round), holders, timeout)
			time.Sleep(writesOf(timeout) * time.Duration(round) / rounds) // cut at a different phase in each round
			defer e.HealServer(follower)
			e.CutServer(follower)
			all = append(all, margins(t, r.handovers)...)
			r.readsGoOnAfterTheGrant(t)
		})
		e.WaitQuorum(t)
	}
	logMargins(t, "follower cut off from its leader", all)
}

type followerRound struct {
	handovers []*handover
	answered  atomic.Int64 // reads by holders that the follower has answered
	raw       *zk.Conn     // plain client with a session on the follower
	node      string       // ephemeral node of that session
	gone      <-chan zk.Event
}

func newFollowerRound(t *testing.T, e *zktest.Ensemble, follower int, chroot string, holders int, timeout time.Duration) *followerRound {
	r := new(followerRound)
	majority := allBut(e.Addrs(), follower)
	here := e.Servers[follower].Addr()
	for i := range holders {
		h := contend(t, fmt.Sprint("q", i), dsn(chroot+"?session_timeout="+timeout.String(), here), dsn(chroot, majority...))
		r.handovers = append(r.handovers, h)
		r.keepReading(t, h)
	}
	r.raw = zktest.Dial(t, timeout, here)
	r.node = chroot + "/raw"
	_, err := r.raw.Create(r.node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	there := zktest.Dial(t, 10*time.Second, majority...)
	_, err = there.Sync(r.node)
	require.NoError(t, err)
	present, _, gone, err := there.ExistsW(r.node)
	require.NoError(t, err)
	require.True(t, present)
	r.gone = gone
	return r
}

// keepReading makes the holder read all the time, which must not renew its
// lease.
func (r *followerRound) keepReading(t *testing.T, h *handover) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for h.lock.Err() == nil && ctx.Err() == nil {
			if h.holder.Ping(ctx) == nil {
				r.answered.Add(1)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// readsGoOnAfterTheGrant shows why a read must not renew a lease. The follower
// still answers a session, and shows its node, after the majority has expired
// that session and granted the lock.
func (r *followerRound) readsGoOnAfterTheGrant(t *testing.T) {
	select {
	case e := <-r.gone:
		require.Equal(t, zk.EventNodeDeleted, e.Type)
	case <-time.After(bound):
		t.Fatal("the majority has not ended the plain session")
	}
	type answer struct {
		present bool
		err     error
	}
	answers := make(chan answer, 1)
	began := time.Now()
	go func() {
		present, _, err := r.raw.Exists(r.node)
		answers <- answer{present, err}
	}()
	select {
	case a := <-answers:
		require.NoError(t, a.err)
		require.True(t, a.present, "the follower does not know that the session has ended")
		t.Logf("%v after the majority had ended the plain session, the follower answered that its node is there", time.Since(began))
	case <-time.After(bound):
		t.Fatal("the follower does not answer any more")
	}
}
