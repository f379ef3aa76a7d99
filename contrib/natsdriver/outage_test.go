package natsdriver

import (
	"context"
	"encoding/json"
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/natstest"
	"github.com/dlock-go/dlock/internal/testenv"
)

var rounds = flag.Int("rounds", 1, "how many times as long servers fail")

// load lets clients lock and unlock on a stream named locks.
func load(t *testing.T, addrs []string, parameters string) *history.Holders {
	t.Helper()
	holders := new(history.Holders)
	stop := holders.Load(t, 6, func() (*dlock.Client, error) {
		return dlock.Open("nats", "nats://"+strings.Join(addrs, ",")+"/locks?"+parameters)
	})
	t.Cleanup(stop)
	holders.Await(t)
	return holders
}

func TestARestartOfAServerWithoutAClusterEndsItsSessions(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	c := open(t, server, "session_timeout=2s&empty_is_new=true")
	s, err := c.Connect(within(t))
	require.NoError(t, err)
	j, err := s.Create(within(t), "q", driver.NodeSpec{Prefix: "a-W-"})
	require.NoError(t, err)
	server.Kill()
	server.Restart()
	testenv.Receive(t, s.Done(), "the end of the session")
	require.ErrorIs(t, s.Err(), driver.ErrLostData)
	next, err := c.Connect(within(t))
	require.NoError(t, err)
	defer next.Close()
	require.NotZero(t, driver.Inspect(next).Describe().Grace)
	other, err := next.Create(within(t), "q", driver.NodeSpec{Prefix: "a-W-"})
	require.NoError(t, err)
	require.Greater(t, other.Token, j.Token)
	_ = s.Close()
}

func TestASingleServerThatFailsUnderLoadMakesNoTwoHolders(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for several graces")
	}
	t.Parallel()
	server := natstest.Start(t)
	holders := load(t, []string{server.Addr()}, "session_timeout=3s")
	operator := begun(t, open(t, server, "empty_is_new=true"))
	operator.settings.stream = "locks"
	for range *rounds {
		server.Kill()
		server.Restart()
		holders.Await(t)
		require.NoError(t, operator.api(t.Context(), "STREAM.DELETE", "", nil, new(any)))
		holders.Await(t)
		backup := operator.backup(t)
		holders.Await(t)
		operator.restore(t, backup)
		holders.Await(t)
	}
}

// A cluster of three or five loses its leader, and the leader with a minority is
// cut off: its clients go on to ask it.
func TestAClusterThatFailsUnderLoadMakesNoTwoHolders(t *testing.T) {
	if testing.Short() {
		t.Skip("starts clusters")
	}
	for _, n := range []int{3, 5} { // one after the other: eight servers are too many for two cores
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			cluster := natstest.StartCluster(t, n)
			holders := load(t, cluster.Addrs(), "session_timeout=20s&empty_is_new=true&replicas="+strconv.Itoa(n))
			goesOn := func() { // an election may take long on a busy machine
				began := time.Now()
				for try := 1; !holders.GoOn(); try++ {
					require.Less(t, try, 3, "hardly any lock was granted for three minutes")
				}
				t.Logf("the lock went on after %v, with %d grants so far", time.Since(began), holders.Grants())
			}
			for range *rounds {
				leader := cluster.Leader(t, "locks")
				leader.Kill()
				goesOn()
				leader.Restart()

				leader = cluster.Leader(t, "locks")
				leader.Pause()
				goesOn()
				leader.Resume()

				leader = cluster.Leader(t, "locks")
				minority := []*natstest.Server{leader}
				if n == 5 {
					minority = append(minority, cluster.Servers[(slices.Index(cluster.Servers, leader)+1)%5])
				}
				heal := cluster.CutOff(minority...)
				cluster.Leader(t, "locks", minority...)
				goesOn()
				heal()
				goesOn()
			}
		})
	}
}

// backup returns a snapshot of the stream, as nats stream backup makes it.
func (kv *kv) backup(t *testing.T) (parts [][]byte) {
	t.Helper()
	l, err := kv.client(t.Context())
	require.NoError(t, err)
	inbox := l.NewInbox()
	sub, err := l.SubscribeSync(inbox)
	require.NoError(t, err)
	var config struct{ Config json.RawMessage }
	require.NoError(t, kv.api(t.Context(), "STREAM.SNAPSHOT", "", map[string]any{"deliver_subject": inbox, "no_consumers": false}, &config))
	parts = append(parts, config.Config)
	for {
		m, err := sub.NextMsg(time.Minute)
		require.NoError(t, err)
		if len(m.Data) == 0 {
			return parts
		}
		parts = append(parts, m.Data)
		_ = m.Respond(nil)
	}
}

// restore puts a snapshot in the place of the stream.
func (kv *kv) restore(t *testing.T, parts [][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := kv.client(ctx)
	require.NoError(t, err)
	var to struct {
		Deliver string `json:"deliver_subject"`
	}
	require.NoError(t, kv.api(ctx, "STREAM.DELETE", "", nil, new(any)))
	require.NoError(t, kv.api(ctx, "STREAM.RESTORE", "", map[string]any{"config": json.RawMessage(parts[0])}, &to))
	for _, part := range append(parts[1:], nil) {
		_, err := l.RequestMsgWithContext(ctx, &nats.Msg{Subject: to.Deliver, Data: part})
		require.NoError(t, err)
	}
}
