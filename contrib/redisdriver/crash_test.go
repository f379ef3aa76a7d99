package redisdriver

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/reason"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestAServerThatIsKilledUnderLoadNeverMakesTwoHolders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	dsn := "redis://" + server.Addr() + "?session_timeout=2s&read_timeout=500ms"
	first, err := dlock.Open("redis", dsn+"&empty_is_new=true")
	require.NoError(t, err)
	require.NoError(t, first.Ping(t.Context()))
	require.NoError(t, first.Close())
	// Without empty_is_new, a server that was emptied by a kill needs a grace.
	history.KilledUnderLoad(t, server, func() (*dlock.Client, error) { return dlock.Open("redis", dsn) })
}

func waitForSequence(t *testing.T, replica *redistest.Server, key string, seq int64) {
	t.Helper()
	require.Eventually(t, func() bool { return replica.Do("GET", key) == strconv.FormatInt(seq, 10) }, 30*time.Second, time.Millisecond)
}

func portOf(s *redistest.Server) string {
	u, _ := url.Parse("redis://" + s.Addr())
	return u.Port()
}

func sentinelConnectors(t *testing.T, timeout time.Duration, run func(t *testing.T, open func(sentinel string) (driver.Connector, error))) {
	for name, open := range map[string]func(sentinel string) (driver.Connector, error){
		"data source name": func(sentinel string) (driver.Connector, error) {
			return Driver{}.OpenConnector("redis://127.0.0.1:1?addr=" + sentinel + "&empty_is_new=true&master_name=locks&session_timeout=" + timeout.String())
		},
		"client": func(sentinel string) (driver.Connector, error) {
			client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{"127.0.0.1:1", sentinel}})
			t.Cleanup(func() { client.Close() })
			return NewConnector(client, Options{EmptyIsNew: true, SessionTimeout: timeout})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open)
		})
	}
}

func TestSentinelLeadsToTheNewMaster(t *testing.T) {
	sentinelConnectors(t, time.Minute, sentinelLeadsToTheNewMaster)
}

// A replaced master may go on accepting heartbeats until the session leaves it.
func TestASessionLeavesAMasterThatSentinelHasReplaced(t *testing.T) {
	sentinelConnectors(t, 2*time.Second, func(t *testing.T, open func(sentinel string) (driver.Connector, error)) {
		master, next := redistest.Start(t), redistest.Start(t)
		sentinel := redistest.StartSentinel(t, "locks", master)
		c, err := open(sentinel.Addr())
		require.NoError(t, err)
		session, err := c.Connect(t.Context())
		require.NoError(t, err)
		defer session.Close()
		sentinel.Do("SENTINEL", "REMOVE", "locks")
		sentinel.Do("SENTINEL", "MONITOR", "locks", "127.0.0.1", portOf(next), "1")
		testenv.Receive(t, session.Done(), "the session leaves the old master")
		require.ErrorContains(t, session.Err(), "the store does not know the session any more")
	})
}

func sentinelLeadsToTheNewMaster(t *testing.T, open func(sentinel string) (driver.Connector, error)) {
	master, replica := redistest.Start(t), redistest.Start(t)
	replica.Do("REPLICAOF", "127.0.0.1", portOf(master))
	sentinel := redistest.StartSentinel(t, "locks", master)
	require.Eventually(t, func() bool {
		replicas, _ := sentinel.Do("SENTINEL", "replicas", "locks").([]any)
		return len(replicas) == 1
	}, 60*time.Second, 20*time.Millisecond)
	connected(t, replica)
	c, err := open(sentinel.Addr())
	require.NoError(t, err)
	session, err := c.Connect(t.Context())
	require.NoError(t, err)
	defer session.Close()
	require.Equal(t, master.Addr(), driver.Inspect(session).Describe().Server)
	joined := create(t, session, "stock/42")
	waitForSequence(t, replica, "{dlock}:seq", joined.Place.Seq)
	sentinel.Do("SENTINEL", "SET", "locks", "down-after-milliseconds", "500")
	master.Kill()
	require.Eventually(t, func() bool {
		_, err := session.List(t.Context(), "stock/42")
		return errors.Is(err, driver.ErrSessionEnded)
	}, 60*time.Second, 50*time.Millisecond, "the session has not found the new master")
	require.Equal(t, replica.Addr(), driver.Inspect(session).Describe().Server)
}

func newReplica(t *testing.T, master *redistest.Server, options ...redistest.Option) (*redistest.Server, *testenv.Proxy) {
	t.Helper()
	replica, replication := redistest.Start(t, options...), testenv.NewProxy(t, master.Addr(), nil)
	replica.Do("REPLICAOF", "127.0.0.1", replication.Port())
	connected(t, replica)
	return replica, replication
}

func connected(t *testing.T, replica *redistest.Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		role, _ := replica.Do("ROLE").([]any)
		return len(role) > 3 && role[3] == "connected"
	}, time.Minute, 5*time.Millisecond)
}

// A master's replication ID also changes without data loss, as when its first
// replica connects.
func TestAReplicaThatComesAndGoesCostsNoLock(t *testing.T) {
	s := newStore(t, redistest.Start(t, redistest.With("repl-backlog-ttl 1")), longTimeout)
	made, joined := s.join(t, "stock/42")
	replid := func() string {
		_, after, _ := strings.Cut(s.server.Do("INFO", "replication").(string), "master_replid:")
		return after[:40]
	}
	last := replid()
	changes := func() bool { before := last; last = replid(); return before != last }
	replica, _ := newReplica(t, s.server)
	require.True(t, changes())
	require.NoError(t, beat(t.Context(), made))
	replica.Kill()
	require.Eventually(t, changes, 60*time.Second, 10*time.Millisecond)
	require.NoError(t, beat(t.Context(), made))
	require.NoError(t, made.Delete(t.Context(), "stock/42", joined.Place, driver.Released))
}

// A replica's data may be outdated while the master is down.
func TestAReplicaAmongTheAddressesIsNotAsked(t *testing.T) {
	master := redistest.Start(t, redistest.Durable())
	replica, replication := newReplica(t, master)
	connect := func() driver.Session {
		return testenv.Session(t, Driver{}, "redis://"+replica.Addr()+"?empty_is_new=true&session_timeout=10m&addr="+master.Addr())
	}
	known := connect()
	create(t, known, "stock/42")
	// Make the replica's data appear to come from another master.
	generation := master.Do("HGET", "{dlock}:gen", "id").(string)
	master.Do("HSET", "{dlock}:gen", "id", "another")
	require.Eventually(t, func() bool { return replica.Do("HGET", "{dlock}:gen", "id") == "another" }, 30*time.Second, time.Millisecond)
	replication.Cut()
	master.Do("HSET", "{dlock}:gen", "id", generation)
	later := create(t, known, "stock/42")
	unknown := connect() // the replica does not know this session

	master.Kill()
	for _, s := range []driver.Session{known, unknown} {
		_, err := s.List(t.Context(), "stock/42")
		require.ErrorIs(t, err, driver.ErrUnavailable, "List")
		_, err = driver.Inspect(s).Walk(t.Context(), "")
		require.ErrorIs(t, err, driver.ErrUnavailable, "Walk")
		_, err = driver.Inspect(s).Read(t.Context(), "stock/42", later.Name)
		require.ErrorIs(t, err, driver.ErrUnavailable, "Read")
		_, err = s.Create(t.Context(), "stock/43", spec())
		require.ErrorIs(t, err, driver.ErrUnavailable, "Create")
		err = s.Delete(t.Context(), "stock/42", later.Place, driver.Released)
		require.ErrorIs(t, err, driver.ErrUnavailable, "Delete")
		require.NoError(t, s.Err())
	}
	master.Restart()
	for _, s := range []driver.Session{known, unknown} {
		// Retry, because a request that the replica rejects makes others fail.
		var err error
		require.Eventually(t, func() bool {
			_, err = s.List(t.Context(), "stock/42")
			return !errors.Is(err, driver.ErrUnavailable)
		}, 30*time.Second, time.Millisecond)
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		require.Equal(t, master.Addr(), driver.Inspect(s).Describe().Server)
	}
}

func startCluster(t *testing.T, host string, options ...redistest.Option) (a, b *redistest.Server) {
	t.Helper()
	options = append(options, redistest.With("cluster-enabled yes"))
	a, b = redistest.Start(t, options...), redistest.Start(t, options...)
	a.Do("CLUSTER", "ADDSLOTSRANGE", "0", "8191")
	b.Do("CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
	a.Do("CLUSTER", "MEET", host, portOf(b))
	for _, s := range []*redistest.Server{a, b} {
		require.Eventually(t, func() bool {
			info, _ := s.Do("CLUSTER", "INFO").(string)
			return strings.HasPrefix(info, "cluster_state:ok")
		}, 60*time.Second, 20*time.Millisecond)
	}
	return a, b
}

func TestAClusterIsFollowed(t *testing.T) {
	t.Parallel()
	a, b := startCluster(t, "127.0.0.1")
	owners := make(map[string]bool)
	for range 6 {
		namespace := newNamespace()
		for _, s := range []*redistest.Server{a, b} {
			dsn := "redis://" + s.Addr() + "?namespace=[*]" + namespace
			require.NoError(t, lockOnce(t, dsn))
			c, err := Driver{}.OpenConnector(dsn)
			require.NoError(t, err)
			session, err := c.Connect(t.Context())
			require.NoError(t, err)
			owners[driver.Inspect(session).Describe().Server] = true
			create(t, session, "stock/42")
			queues, err := driver.Inspect(session).Walk(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, []string{"stock/42"}, queues)
			require.NoError(t, session.Close())
		}
	}
	require.Len(t, owners, 2, "both servers have namespaces")
}

// Redis redirects to IPv6 addresses without brackets, which net.Dial rejects.
func TestAClusterWithIPv6IsFollowed(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6: ", err)
	} else {
		l.Close()
	}
	a, b := startCluster(t, "::1", redistest.With("bind 127.0.0.1 ::1"))
	for _, s := range []*redistest.Server{a, b} {
		require.NoError(t, lockOnce(t, "redis://[::1]:"+portOf(s)))
	}
}

// The old server would report that there are no queues.
func TestASessionFollowsAClusterThatMovesItsKeys(t *testing.T) {
	t.Parallel()
	a, b := startCluster(t, "127.0.0.1")
	c, err := Driver{}.OpenConnector("redis://" + a.Addr() + "?empty_is_new=true&session_timeout=10m&namespace=walk")
	require.NoError(t, err)
	session, err := c.Connect(t.Context())
	require.NoError(t, err)
	defer session.Close()
	create(t, session, "stock/42")
	from, to := a, b
	if driver.Inspect(session).Describe().Server == b.Addr() {
		from, to = b, a
	}
	moveKeys(t, "walk", from, to)
	_, err = driver.Inspect(session).Walk(t.Context(), "")
	require.ErrorIs(t, err, driver.ErrSessionEnded, "the other server has not been asked")
	require.Equal(t, to.Addr(), driver.Inspect(session).Describe().Server)
	moved, err := c.Connect(untilGrace(t))
	require.ErrorContains(t, err, "no lock is granted for another")
	require.Nil(t, moved)

	// After the move back, Connect waits again: the old leases may still run.
	moveKeys(t, "walk", to, from)
	_, err = c.Connect(untilGrace(t))
	require.ErrorContains(t, err, "no lock is granted for another")

	from.Kill()
	_, err = c.Connect(short(t))
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

func moveKeys(t *testing.T, namespace string, from, to *redistest.Server) {
	slot := strconv.FormatInt(from.Do("CLUSTER", "KEYSLOT", "{"+namespace+"}:seq").(int64), 10)
	source, target := from.Do("CLUSTER", "MYID").(string), to.Do("CLUSTER", "MYID").(string)
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", source)
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	keys := from.Do("CLUSTER", "GETKEYSINSLOT", slot, "100").([]any)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		from.Do("MIGRATE", "127.0.0.1", portOf(to), key.(string), "0", "10000")
	}
	to.Do("CLUSTER", "SETSLOT", slot, "NODE", target)
	from.Do("CLUSTER", "SETSLOT", slot, "NODE", target)
}

// untilGrace returns a context that ends once a Connect waits for old leases.
func untilGrace(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return reason.With(ctx, func(error) { cancel() })
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Redis aborts a script at a missing key but keeps the script's earlier
// changes.
func TestNoNodeStaysWhenAClusterMovesItsKeys(t *testing.T) {
	t.Parallel()
	a, b := startCluster(t, "127.0.0.1")
	connect := func() driver.Session {
		return testenv.Session(t, Driver{}, "redis://"+a.Addr()+"?empty_is_new=true&session_timeout=10m&namespace=moves")
	}
	closed, renames, looks := connect(), connect(), connect()
	for _, queue := range []string{"closed/1", "closed/2", "closed/3"} {
		create(t, closed, queue)
	}
	renamed := create(t, renames, "renamed")

	server := map[string]*redistest.Server{a.Addr(): a, b.Addr(): b}[driver.Inspect(looks).Describe().Server]
	slot := strconv.FormatInt(server.Do("CLUSTER", "KEYSLOT", "{moves}:seq").(int64), 10)
	other := map[*redistest.Server]*redistest.Server{a: b, b: a}[server]
	server.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", other.Do("CLUSTER", "MYID").(string))
	_, err := renames.Create(t.Context(), "free", spec())
	require.ErrorIs(t, err, driver.ErrUnavailable)
	_, err = renames.Replace(t.Context(), "renamed", renamed.Place, "web-R-")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorIs(t, closed.Close(), driver.ErrUnavailable)
	server.Do("CLUSTER", "SETSLOT", slot, "STABLE")

	require.NoError(t, closed.Close())
	place, err := renames.Replace(t.Context(), "renamed", renamed.Place, "web-R-")
	require.NoError(t, err)
	for queue, want := range map[string][]driver.Node{"closed/1": {}, "closed/2": {}, "closed/3": {}, "renamed": {place.Node}} {
		nodes, err := looks.List(t.Context(), queue)
		require.NoError(t, err)
		require.Equal(t, want, nodes, queue)
	}
	require.Eventually(t, func() bool {
		nodes, err := looks.List(t.Context(), "free")
		return err == nil && len(nodes) == 0
	}, 10*time.Second, time.Millisecond)
}
