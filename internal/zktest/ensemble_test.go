package zktest

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// shortSession leaves a busy machine two seconds to answer a client.
const shortSession = 3 * time.Second

func create(conn *zk.Conn, path string) error {
	_, err := conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	return err
}

// Tests of locks rely on these stale reads.
func TestFollowerCutOffAnswersReadsAfterSessionsHaveExpired(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
	e := StartEnsemble(t, 3, WithConfig(map[string]string{"syncLimit": "40"}))
	leader, follower := e.Leader(t), e.Follower(t)
	holder := Dial(t, shortSession, e.Servers[follower].Addr())
	reader := Dial(t, 10*time.Second, e.Servers[follower].Addr())
	other := Dial(t, 10*time.Second, e.Servers[follower].Addr())
	require.NoError(t, create(holder, "/held"))
	_, _, gone, err := Dial(t, 10*time.Second, e.Servers[leader].Addr()).ExistsW("/held")
	require.NoError(t, err)

	e.CutServer(follower)
	require.Equal(t, zk.EventNodeDeleted, (<-gone).Type, "the leader has let the session expire")
	held, _, err := reader.Exists("/held")
	require.NoError(t, err)
	require.True(t, held, "the follower does not know that the session has ended")

	synced := make(chan error, 1)
	go func() {
		_, err := other.Sync("/")
		synced <- err
	}()
	for until := time.Now().Add(time.Second); time.Now().Before(until); {
		_, _, err = reader.Exists("/held")
		require.NoError(t, err)
	}
	require.Empty(t, synced, "Sync needs the leader")

	e.HealServer(follower)
	e.WaitQuorum(t)
	<-synced
	require.Empty(t, e.Servers[follower].Tree(t, "/"))
	require.ElementsMatch(t, e.Addrs(), []string{e.Servers[0].Addr(), e.Servers[1].Addr(), e.Servers[2].Addr()})
}

// requireLinksProxied requires that a test can cut all connections between
// servers.
func requireLinksProxied(t *testing.T, e *Ensemble) {
	t.Helper()
	leader := e.Leader(t)
	for i := range e.links {
		for j := range i {
			require.Positive(t, e.links[i][j].election.Connections()+e.links[j][i].election.Connections(), "%d and %d", i, j)
		}
		if i != leader {
			require.Positive(t, e.links[i][leader].quorum.Connections(), "follower %d", i)
		}
	}
}

func TestEnsembleSurvivesItsLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
	e := StartEnsemble(t, 0, WithConfig(map[string]string{"syncLimit": "4"}))
	requireLinksProxied(t, e)
	require.NoError(t, create(Dial(t, time.Minute, e.Addrs()...), "/a"))

	t.Log("cut off, the leader steps down and the others elect another one")
	first := e.Leader(t)
	e.CutServer(first)
	require.Eventually(t, func() bool {
		mode := e.Servers[first].mode()
		return mode != "leader" && !strings.HasPrefix(mode, noAnswer)
	}, 30*time.Second, 5*time.Millisecond)
	second := e.Leader(t)
	require.NotEqual(t, first, second)
	require.NotContains(t, []string{"leader", "follower"}, e.Servers[first].mode())

	t.Log("healed, it follows")
	e.HealServer(first)
	e.WaitQuorum(t)
	require.Equal(t, second, e.Leader(t))
	requireLinksProxied(t, e)

	t.Log("killed, the leader is replaced, and started again it follows")
	e.Servers[second].Kill()
	e.WaitQuorum(t)
	third := e.Leader(t)
	require.NotEqual(t, second, third)
	e.Servers[second].Restart()
	e.WaitQuorum(t)
	require.Equal(t, third, e.Leader(t))
	require.Equal(t, []string{"/a"}, e.Servers[second].Tree(t, "/"))
	requireLinksProxied(t, e)

	t.Log("paused, it is no follower")
	e.Servers[second].Pause()
	require.NotEqual(t, "follower", e.Servers[second].mode())
	e.Servers[second].Resume()
	e.WaitQuorum(t)
}
