package ensemble

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

// A leader that has lost its followers carries on for a while (syncLimit). So
// do the followers before they elect another leader. A holder on the old leader
// must learn of the loss before the lock is granted to a client of the other
// servers.
func TestHolderOnALeaderThatLostItsFollowersIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	const rounds, holders, timeout = 3, 4, 3 * time.Second
	e := ensemble(t, 6) // syncLimit of 3s
	var all []time.Duration
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			leader := e.Leader(t)
			runs := contendAcross(t, e, leader, fmt.Sprint("/r", round), holders, timeout)
			time.Sleep(writesOf(timeout) * time.Duration(round) / rounds) // cut at a different phase in each round
			defer e.HealServer(leader)
			e.CutServer(leader)
			all = append(all, margins(t, runs)...)
		})
		e.WaitQuorum(t)
	}
	logMargins(t, "leader cut off from its followers", all)
}

// contendAcross connects holders to one server and waiters to the others.
func contendAcross(t *testing.T, e *zktest.Ensemble, server int, chroot string, holders int, timeout time.Duration) (all []*handover) {
	t.Helper()
	for i := range holders {
		all = append(all, contend(t, fmt.Sprint("q", i),
			dsn(chroot+"?session_timeout="+timeout.String(), e.Servers[server].Addr()),
			dsn(chroot, allBut(e.Addrs(), server)...)))
	}
	return all
}
