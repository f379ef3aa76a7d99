package ensemble

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

// A leader that is cut off stays leader for ten seconds (syncLimit) and answers
// a Sync on its own. Meanwhile the other servers elect a new leader, which
// expires the holder's session after two seconds. Therefore a Sync must not
// renew a holder's lease.
func TestHolderOnADeposedLeaderIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	const syncLimit, timeout = 20, 2 * time.Second
	logMargins(t, "deposed leader", margins(t, deposedLeaderRuns(t, syncLimit, timeout, 6)))
}

func deposedLeaderRuns(t *testing.T, syncLimit int, timeout time.Duration, holders int) []*handover {
	t.Helper()
	e := ensemble(t, syncLimit)
	leader := e.Leader(t)
	runs := contendAcross(t, e, leader, "/d", holders, timeout)
	e.CutServer(leader)
	restartAllBut(e, leader) // after a restart they no longer wait for the old leader
	return runs
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

// Leases rely on this: only a leader with followers answers a write.
func TestLeaderWithoutFollowersAnswersASyncButNoWrite(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*zk.Conn) error{
		"a write that will be refused": func(c *zk.Conn) error {
			if err := c.Delete("/no-such-node", -1); err != zk.ErrNoNode {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		},
		"a check": func(c *zk.Conn) error {
			_, err := c.Multi(&zk.CheckVersionRequest{Path: "/", Version: -1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answersOnlyWithAQuorum(t, write)
		})
	}
}

func answersOnlyWithAQuorum(t *testing.T, write func(*zk.Conn) error) {
	t.Helper()
	e := ensemble(t, 60) // syncLimit of 30s
	leader := e.Leader(t)
	writer := zktest.Dial(t, 20*time.Second, e.Servers[leader].Addr())
	reader := zktest.Dial(t, 20*time.Second, e.Servers[leader].Addr())
	e.CutServer(leader)
	_, err := reader.Sync("/")
	require.NoError(t, err)

	answer := make(chan error, 1)
	go func() { answer <- write(writer) }()
	for range 50 { // long enough for an answer, if there were one
		_, _, err := reader.Exists("/")
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond)
	}
	require.Empty(t, answer, "it waits for the quorum")
	e.HealServer(leader)
	select {
	case err := <-answer:
		require.NoError(t, err)
	case <-time.After(bound):
		t.Fatal("no answer from the quorum")
	}
}
