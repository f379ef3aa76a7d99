package natsdriver

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session/cas"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/natstest"
	"github.com/dlock-go/dlock/internal/testenv"
)

var rounds = flag.Int("rounds", 1, "how many times as long servers fail")

func TestARestartOfAServerWithoutAClusterEndsItsSessions(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	c := open(t, server, "session_timeout=5s&empty_is_new=true")
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
	require.NoError(t, s.Close())
}

func TestASingleServerThatIsKilledUnderLoadMakesNoTwoHolders(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for several graces")
	}
	t.Parallel()
	server := natstest.Start(t)
	for range *rounds {
		history.KilledUnderLoad(t, server, func() (*dlock.Client, error) {
			return dlock.Open("nats", "nats://"+server.Addr()+"/locks?session_timeout=3s")
		})
	}
}

// The restored backup lacks the node of a holder that is cut off.
func TestARestoreMakesNoTwoHolders(t *testing.T) {
	for n, addr := range map[int]string{1: natstest.Start(t).Addr(), 3: natstest.StartCluster(t, 3).Servers[0].Addr()} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			open := func(addr string) *connector {
				nc, err := nats.Connect(addr, nats.IgnoreDiscoveredServers())
				require.NoError(t, err)
				t.Cleanup(nc.Close)
				c, err := NewConnector(nc, "locks", fmt.Sprintf("session_timeout=6s&empty_is_new=true&replicas=%d", n))
				require.NoError(t, err)
				return c.(*connector)
			}
			lock := func(addr string) *dlock.Lock {
				client := dlock.NewClient(open(addr))
				t.Cleanup(func() { client.Close() })
				l, err := client.RWMutex("q").Lock(within(t))
				require.NoError(t, err)
				return l
			}
			proxy := testenv.NewProxy(t, addr, nil)
			operator := begun(t, open(addr))
			backup := operator.backup(t)
			before := lock(proxy.Addr())
			proxy.Cut()
			operator.restore(t, backup)
			now := lock(addr)
			require.Error(t, before.Err())
			require.Greater(t, now.Token(), before.Token())
		})
	}
}

// The data source name has only one server of the cluster.
func TestASilentServerIsLeftForAnother(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3)
	kv := begun(t, open(t, cluster.Servers[0], "replicas=3&empty_is_new=true"))
	addr := ""
	for range 10 { // a random choice would soon repeat a server
		l, err := kv.client(within(t))
		require.NoError(t, err)
		require.NotEqual(t, addr, l.ConnectedAddr())
		addr = l.ConnectedAddr()
		l.Close()
	}
	silent, err := kv.client(within(t))
	require.NoError(t, err)
	server := cluster.Servers[slices.Index(cluster.Addrs(), silent.ConnectedAddr())]
	server.Pause()
	defer server.Resume()
	ctx := within(t)
	for err = driver.ErrUnavailable; errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil; {
		_, err = kv.Get(ctx, "q/q")
	}
	require.NoError(t, err)
}

func TestASessionWritesNothingIntoANewStream(t *testing.T) {
	c := open(t, natstest.Shared(t), "empty_is_new=true")
	old := begun(t, c)
	removeStream(t, c)
	now := begun(t, c)
	_, err := old.Generation(within(t))
	require.ErrorIs(t, err, driver.ErrLostData)
	_, err = old.Write(within(t), cas.Entry{Key: "q/q", Value: []byte("{}")})
	require.ErrorIs(t, err, driver.ErrLostData)
	e, err := now.Get(within(t), "q/q")
	require.NoError(t, err)
	require.Nil(t, e.Value)
}

// Each round kills one leader, pauses one, and cuts one off from the others.
func TestAClusterThatFailsUnderLoadMakesNoTwoHolders(t *testing.T) {
	if testing.Short() {
		t.Skip("starts clusters")
	}
	for _, n := range []int{3, 5} { // not parallel: eight servers overload two cores
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			cluster := natstest.StartCluster(t, n)
			holders := new(history.Holders)
			defer holders.Load(t, 6, func() (*dlock.Client, error) {
				return dlock.Open("nats", fmt.Sprintf("nats://%s/locks?session_timeout=20s&empty_is_new=true&replicas=%d", strings.Join(cluster.Addrs(), ","), n))
			})()
			holders.Await(t)
			goesOn := func() { // elections may be slow on a busy machine
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

func (kv *kv) restore(t *testing.T, parts [][]byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := kv.client(ctx)
	require.NoError(t, err)
	var to struct {
		Deliver string `json:"deliver_subject"`
	}
	require.NoError(t, kv.api(ctx, "STREAM.DELETE", "", struct{}{}, new(any)))
	require.NoError(t, kv.api(ctx, "STREAM.RESTORE", "", map[string]any{"config": json.RawMessage(parts[0])}, &to))
	for _, part := range append(parts[1:], nil) {
		_, err := l.RequestMsgWithContext(ctx, &nats.Msg{Subject: to.Deliver, Data: part})
		require.NoError(t, err)
	}
}
