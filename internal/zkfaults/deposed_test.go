package zkfaults

import (
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

// A leader that was cut off believes for syncLimit ticks to be one, and answers a Sync alone. Where the
// others elect a leader earlier than that, a session there begins its timeout while the old leader still
// vouches for it here. So session_timeout has to be more than twice syncLimit ticks.
func TestHolderOnADeposedLeaderIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	const syncLimit, tick = 4, 500 * time.Millisecond
	const timeout = 3 * syncLimit * tick
	logMargins(t, "deposed leader", margins(t, deposedLeaderRuns(t, syncLimit, timeout, 6)))
}

func deposedLeaderRuns(t *testing.T, syncLimit int, timeout time.Duration, holders int) []*handover {
	t.Helper()
	e := ensemble(t, syncLimit)
	leader := e.Leader(t)
	runs := contendAcross(t, e, leader, "/d", holders, timeout)
	e.CutServer(leader)
	restartAllBut(e, leader) // they do not wait for the old leader, of which they know nothing any more
	return runs
}

func restartAllBut(e *zktest.Ensemble, leader int) {
	var wg sync.WaitGroup
	for i, s := range e.Servers {
		if i != leader {
			s.Kill()
			wg.Go(s.Restart)
		}
	}
	wg.Wait()
}

// The limit above is the server's: this is what it answers alone.
func TestLeaderWithoutFollowersAnswersASyncButNoWrite(t *testing.T) {
	t.Parallel()
	e := ensemble(t, 60) // 30s
	leader := e.Leader(t)
	writer := zktest.Dial(t, 20*time.Second, e.Servers[leader].Addr())
	reader := zktest.Dial(t, 20*time.Second, e.Servers[leader].Addr())
	e.CutServer(leader)
	_, err := reader.Sync("/")
	require.NoError(t, err)

	refusal := make(chan error, 1)
	go func() { refusal <- writer.Delete("/no-such-node", -1) }()
	for range 50 { // time for an answer, if there were one
		_, _, err := reader.Exists("/")
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond)
	}
	require.Empty(t, refusal, "a write that will be refused waits for the quorum, too")
	e.HealServer(leader)
	select {
	case err := <-refusal:
		require.ErrorIs(t, err, zk.ErrNoNode)
	case <-time.After(bound):
		t.Fatal("no answer from the quorum")
	}
}
