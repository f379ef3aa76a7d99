package ensemble

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

// Packets between two servers are lost in one direction only, which the servers
// do not notice for a while (syncLimit). A holder must learn of the loss before
// the lock is granted to a client of another server.
func TestHolderBehindAOneWayCutBetweenServersIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	const holders, timeout = 4, 3 * time.Second
	for name, c := range map[string]struct {
		holdersAt func(leader, follower int) int
		cut       func(e *zktest.Ensemble, leader, follower int)
	}{
		"a follower cut off on the way to its leader": {
			func(_, follower int) int { return follower },
			func(e *zktest.Ensemble, leader, follower int) { e.CutOneWay(follower, leader) },
		},
		"a follower cut off on the way from its leader": {
			func(_, follower int) int { return follower },
			func(e *zktest.Ensemble, leader, follower int) { e.CutOneWay(leader, follower) },
		},
		"a leader cut off on the way to its followers": {
			func(leader, _ int) int { return leader },
			func(e *zktest.Ensemble, leader, follower int) {
				e.CutOneWay(leader, follower)
				e.CutOneWay(leader, other(leader, follower))
			},
		},
		"a leader cut off on the way from its followers": {
			func(leader, _ int) int { return leader },
			func(e *zktest.Ensemble, leader, follower int) {
				e.CutOneWay(follower, leader)
				e.CutOneWay(other(leader, follower), leader)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := ensemble(t, 12) // syncLimit of 6s
			leader, follower := e.Leader(t), e.Follower(t)
			runs := contendAcross(t, e, c.holdersAt(leader, follower), "/r", holders, timeout)
			c.cut(e, leader, follower)
			logMargins(t, fmt.Sprint("holders on ", name), margins(t, runs))
			e.Heal()
			e.WaitQuorum(t)
		})
	}
}
