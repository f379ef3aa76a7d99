package ensemble

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

func other(a, b int) int { return 3 - a - b }

// A failing server may answer reads and Syncs, which must not renew the lease.
func TestHolderOnAFailingServerIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	atLeader := func(leader, _ int) int { return leader }
	atFollower := func(_, follower int) int { return follower }
	for name, c := range map[string]struct {
		syncLimit int // half seconds until a cut-off server stops answering
		timeout   time.Duration
		rounds    int // the fault hits at another time in each
		at        func(leader, follower int) int
		fail      func(e *zktest.Ensemble, leader, follower int)
	}{
		"a follower without its leader":  {60, 3 * time.Second, 5, atFollower, func(e *zktest.Ensemble, _, follower int) { e.CutServer(follower) }},
		"a leader without its followers": {6, 3 * time.Second, 3, atLeader, func(e *zktest.Ensemble, leader, _ int) { e.CutServer(leader) }},
		// Restarted servers elect a leader without waiting for the old one.
		"a deposed leader": {20, 2 * time.Second, 1, atLeader, func(e *zktest.Ensemble, leader, _ int) { e.CutServer(leader); restartAllBut(e, leader) }},
		"a follower cut off on the way to its leader":   {12, 3 * time.Second, 1, atFollower, func(e *zktest.Ensemble, leader, follower int) { e.CutOneWay(follower, leader) }},
		"a follower cut off on the way from its leader": {12, 3 * time.Second, 1, atFollower, func(e *zktest.Ensemble, leader, follower int) { e.CutOneWay(leader, follower) }},
		"a leader cut off on the way to its followers": {12, 3 * time.Second, 1, atLeader, func(e *zktest.Ensemble, leader, follower int) {
			e.CutOneWay(leader, follower)
			e.CutOneWay(leader, other(leader, follower))
		}},
		"a leader cut off on the way from its followers": {12, 3 * time.Second, 1, atLeader, func(e *zktest.Ensemble, leader, follower int) {
			e.CutOneWay(follower, leader)
			e.CutOneWay(other(leader, follower), leader)
		}},
		// A resumed server does not notice at first that time has passed.
		"a stopped follower": {6, 2 * time.Second, 1, atFollower, func(e *zktest.Ensemble, _, follower int) { e.Servers[follower].Pause() }},
		"a stopped leader":   {6, 2 * time.Second, 1, atLeader, func(e *zktest.Ensemble, leader, _ int) { e.Servers[leader].Pause() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const holders = 4
			e := ensemble(t, c.syncLimit)
			var all []time.Duration
			for round := range c.rounds {
				leader, follower := e.Leader(t), e.Follower(t)
				at := c.at(leader, follower)
				var runs []*handover
				for i := range holders {
					chroot := fmt.Sprint("/r", round)
					h := contend(t, fmt.Sprint("q", i), dsn(chroot+"?session_timeout="+c.timeout.String(), e.Servers[at].Addr()),
						dsn(chroot, slices.Delete(slices.Clone(e.Addrs()), at, at+1)...))
					runs = append(runs, h)
					h.keepReading(t)
				}
				time.Sleep(writesOf(c.timeout) * time.Duration(round) / time.Duration(c.rounds))
				c.fail(e, leader, follower)
				all = append(all, margins(t, runs)...)
				e.Servers[at].Resume()
				e.Heal()
				e.WaitQuorum(t)
			}
			logMargins(t, name, all)
		})
	}
}

func (h *handover) keepReading(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for h.lock.Err() == nil && ctx.Err() == nil {
			_ = h.holder.Ping(ctx) // fails when the server is cut off
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); reading.Wait() })
}

func restartAllBut(e *zktest.Ensemble, deposed ...int) {
	var wg sync.WaitGroup
	for i, s := range e.Servers {
		if !slices.Contains(deposed, i) {
			s.Kill()
			wg.Go(s.Restart)
		}
	}
	wg.Wait()
}
