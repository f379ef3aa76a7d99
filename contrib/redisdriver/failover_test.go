package redisdriver

import (
	"context"
	"flag"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

var losses = flag.Int("losses", 4, "how often the store loses data under load")

// loss is a store that loses data while a lock is held.
type loss struct {
	*store
	successor *store // where the next contender takes the lock
}

func newLoss(t *testing.T, params string, options ...redistest.Option) *loss {
	t.Parallel()
	s := newStore(t, redistest.Start(t, options...), "session_timeout=2s&"+params)
	return &loss{store: s, successor: s}
}

// replica starts a replica that learns of no lock taken after the call.
func (l *loss) replica(options ...redistest.Option) *redistest.Server {
	replica, replication := newReplica(l.t, l.server, options...)
	early, err := l.newClient().RWMutex("stock/41").Lock(l.t.Context())
	require.NoError(l.t, err)
	require.NoError(l.t, early.Unlock())
	waitForSequence(l.t, replica, l.key("seq"), early.Token())
	replication.Cut()
	return replica
}

func (l *loss) movesTo(server *redistest.Server) {
	l.successor = newStore(l.t, server, l.params)
	l.successor.namespace, l.successor.graced = l.namespace, true
}

// hold takes the lock, and cuts its holder off from the store.
func (l *loss) hold() *dlock.Lock {
	lock := l.holdReachable()
	l.t.Cleanup(l.cutFirst())
	return lock
}

func (l *loss) holdReachable() *dlock.Lock {
	lock, err := l.newClient().RWMutex("stock/42").Lock(l.t.Context())
	require.NoError(l.t, err)
	l.graced = true
	return lock
}

// grantsLater checks that the holder notices its loss before the next grant.
func (l *loss) grantsLater(holder *dlock.Lock) {
	l.t.Helper()
	if holder.Err() != nil {
		l.t.Log("the machine is slow: the lease was over before the next contender came, so its grace is not tested")
	}
	next := l.successor.lock()
	require.Error(l.t, holder.Err(), "there are two holders")
	require.Greater(l.t, next.Token(), holder.Token())
	require.NoError(l.t, next.Unlock())
}

func promote(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }

func follow(t *testing.T, replica, master *redistest.Server) {
	t.Helper()
	replica.Do("REPLICAOF", "127.0.0.1", portOf(master))
	connected(t, replica)
}

func TestNoTwoHoldersIfALaggingReplicaIsPromoted(t *testing.T) {
	l := newLoss(t, "")
	replica := l.replica()
	holder := l.hold()
	l.server.Kill()
	promote(replica)
	l.movesTo(replica)
	l.grantsLater(holder)
}

// The copied data lack the lock but name this very master as their origin.
func TestNoTwoHoldersIfAMasterIsDemotedAndPromotedAgain(t *testing.T) {
	l := newLoss(t, "")
	replica := l.replica()
	holder := l.hold()
	promote(replica)
	follow(t, l.server, replica)
	promote(l.server)
	l.server.Do("CONFIG", "RESETSTAT") // clears statistics that reveal the demotion
	l.grantsLater(holder)
}

func TestNoTwoHoldersIfAServerStartsWithoutData(t *testing.T) {
	l := newLoss(t, "")
	holder := l.hold()
	l.server.Kill()
	l.server.Restart()
	l.grantsLater(holder)
}

func TestNoTwoHoldersAfterFlushAll(t *testing.T) {
	l := newLoss(t, "")
	holder := l.hold()
	l.server.Do("FLUSHALL")
	l.grantsLater(holder)
}

// After the swap, the data look current but lack the holder's lock.
func TestNoTwoHoldersIfDatabasesAreSwapped(t *testing.T) {
	for name, other := range map[string]bool{"with that of other clients": true, "with an empty one": false} {
		t.Run(name, func(t *testing.T) {
			l := newLoss(t, "")
			if other {
				there := newStore(t, l.server, l.params+"&db=1")
				there.namespace = l.namespace
				made, err := there.Connect(t.Context())
				require.NoError(t, err)
				require.NoError(t, made.Close())
			}
			holder := l.hold()
			l.server.Do("SWAPDB", "0", "1")
			if !other {
				_, err := l.Connect(untilGrace(t))
				require.ErrorContains(t, err, "no lock is granted for another")
				l.server.Do("SWAPDB", "0", "1")
			}
			l.grantsLater(holder)
		})
	}
}

func TestNoTwoHoldersIfAnOldDumpIsRestored(t *testing.T) {
	l := newLoss(t, "")
	old, err := l.Connect(t.Context())
	require.NoError(t, err)
	l.server.Do("SAVE")
	holder := l.hold()
	l.server.Kill()
	l.server.Restart()
	require.Eventually(t, func() bool { // the session must end although it was dumped
		_, err := old.Create(t.Context(), "stock/43", spec())
		require.Error(t, err)
		return old.Err() != nil
	}, time.Minute, time.Millisecond)
	l.grantsLater(holder)
	require.Zero(t, l.server.Do("EXISTS", l.key("q:stock/43")))
}

func TestAClockStepDoesNotEndTheGrace(t *testing.T) {
	redistest.RequireClock(t)
	l := newLoss(t, "", redistest.WithClock())
	holder := l.hold()
	l.server.Kill()
	l.server.Restart()
	stepped := make(chan struct{})
	go func() {
		defer close(stepped)
		assert.Eventually(t, func() bool { return l.server.Do("HEXISTS", l.key("gen"), "rest") == int64(1) }, time.Minute, time.Millisecond)
		l.server.SetClock(time.Minute)
	}()
	l.grantsLater(holder)
	<-stepped
}

// The holder's timeout of 6 s determines the grace, not the next client's 1 s.
func TestTheLongestGraceOutlivesItsGeneration(t *testing.T) {
	l := newLoss(t, "")
	l.params = "session_timeout=6s"
	holder := l.hold()
	l.server.Do("SAVE")
	l.server.Kill()
	l.server.Restart()
	l.params = "session_timeout=1s"
	l.grantsLater(holder)
}

// One client's weaker parameters must not weaken the locks of other clients.
func TestTheStrictestParametersCountAsLongAsTheirSession(t *testing.T) {
	s := newStore(t, redistest.Start(t), "session_timeout=10s")
	newReplica(t, s.server)
	connect := func(params string) driver.Session {
		return testenv.Session(t, Driver{}, s.dsn(s.server.Addr())+params)
	}
	earlier := connect("")
	strict := connect("&replicas=1&grace=1h")
	b := connect("")
	require.EqualValues(t, 1, inside(b).link.confirmed.Load())
	require.Equal(t, time.Hour, inside(b).grace)
	checked(t, "redis://"+s.server.Addr()+"?session_timeout=10s&namespace="+s.namespace).Has(t, driver.Warning, "a session has a grace of 1h0m0s", "give all clients the same")
	require.NoError(t, beat(t.Context(), earlier))
	require.EqualValues(t, 1, inside(earlier).link.confirmed.Load())

	require.NoError(t, strict.Close())
	b = connect("")
	require.Zero(t, inside(b).link.confirmed.Load())
	require.Equal(t, 10*time.Second, inside(b).grace)
}

func TestALongerGraceProlongsTheOneThatRuns(t *testing.T) {
	l := newLoss(t, "")
	l.params = "session_timeout=6s"
	holder := l.hold()
	l.server.Kill()
	l.server.Restart()
	l.params = "session_timeout=4s"
	_, err := l.Connect(untilGrace(t))
	require.ErrorContains(t, err, "no lock is granted for another")
	l.params = "session_timeout=6s"
	l.grantsLater(holder)
}

func TestTokensRiseIfThePromotedServersClockIsBehind(t *testing.T) {
	redistest.RequireClock(t)
	l := newLoss(t, "")
	replica := l.replica(redistest.WithClock())
	replica.SetClock(-time.Minute)
	holder := l.hold()
	l.server.Kill()
	promote(replica)
	l.movesTo(replica)
	l.grantsLater(holder)
}

// Tokens restart from the clock, and would fall if they had been ahead of it.
func TestTokensRiseIfAllDataAreLostLater(t *testing.T) {
	l := newLoss(t, "")
	replica := l.replica()
	l.server.Kill()
	promote(replica)
	l.movesTo(replica)
	holder := l.successor.lock()
	replica.Kill()
	replica.Restart()
	l.successor.graced = false // skip the grace period, because only tokens matter
	next := l.successor.lock()
	require.Greater(t, next.Token(), holder.Token())
	require.NoError(t, next.Unlock())
}

// The isolated master still answers, but no replica confirms heartbeats.
func TestNoTwoHoldersIfAMasterIsIsolated(t *testing.T) {
	l := newLoss(t, "replicas=1")
	replica, replication := newReplica(t, l.server)
	holder := l.holdReachable()
	replication.Cut()
	promote(replica)
	follow(t, redistest.Start(t), replica)
	l.movesTo(replica)
	l.grantsLater(holder)
	require.Regexp(t, "0 of 1 replicas have confirmed the heartbeat|no answer within", holder.Err()) // the latter on a busy machine
}

// Until the replica follows the new master, it confirms the old holder's
// heartbeats.
func TestAGraceBeginsWhenReplicasFollow(t *testing.T) {
	l := newLoss(t, "replicas=1")
	loyal, _ := newReplica(t, l.server)
	promoted, replication := newReplica(t, l.server)
	holder := l.holdReachable()
	replication.Cut()
	promote(promoted)
	l.movesTo(promoted)
	for range 10 {
		_, err := l.successor.Connect(t.Context())
		require.ErrorContains(t, err, "0 of 1 replicas have confirmed")
	}
	require.Equal(t, strconv.Itoa(int(2*time.Second/time.Microsecond)), promoted.Do("HGET", l.key("gen"), "rest"))
	require.NoError(t, holder.Err())
	follow(t, loyal, promoted)
	l.grantsLater(holder)
}

// Only attempts received by replicas of the current master shorten the grace.
func TestAnAttemptCountsInItsGenerationOnly(t *testing.T) {
	l := newLoss(t, "")
	open := func(generation string) string {
		attempt := []string{"EVAL", source("open"), "1", l.key("seq"), "session", "3600000000", "3600000000", "0", "1", generation, "1"}
		require.Len(t, l.server.Do(attempt...), 6)
		return l.server.Do("HGET", l.key("gen"), "rest").(string)
	}
	require.Equal(t, "3600000000", open(""))
	require.Equal(t, "3600000000", open("that of an earlier master"))
	replication, _ := l.server.Do("INFO", "replication").(string)
	_, after, _ := strings.Cut(replication, "master_replid:")
	require.NotEqual(t, "3600000000", open(after[:40]))
}

// Until the replica receives an attempt, it may confirm another master's
// heartbeats.
func TestAGraceCountsFromTheReceiptOfAnAttempt(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Start(t), "session_timeout=10s&replicas=1")
	s.graced = true
	_, replication := newReplica(t, s.server)
	proxy := redistest.NewProxy(t, s.server.Addr(), classify)
	proxy.Keep()
	for before, received := 0, 0; received == 0; { // WAIT may time out on a slow machine
		replication.Cut()
		ctx, cancel := context.WithCancel(t.Context())
		connected := make(chan error, 1)
		go func() { connected <- s.connectOver(ctx, proxy) }()
		require.Eventually(t, func() bool {
			return strings.Contains(s.server.Do("INFO", "clients").(string), "blocked_clients:1") || len(connected) > 0
		}, time.Minute, time.Millisecond)
		before = microsOf(t, s.server.Do("TIME"))
		replication.Heal()
		require.Eventually(t, func() bool {
			received = receivedAt(t, proxy)
			return received > 0 || len(connected) > 0
		}, time.Minute, time.Millisecond)
		cancel()
		require.Error(t, <-connected)
		if received > 0 {
			require.Greater(t, received, before)
		}
	}
}

func (s *store) connectOver(ctx context.Context, p *redistest.Proxy) error {
	c, err := s.connector(p.Addr())
	if err != nil {
		return err
	}
	_, err = c.Connect(ctx)
	return err
}

// receivedAt returns the receipt time in the first attempt that contains one,
// or 0.
func receivedAt(t *testing.T, p *redistest.Proxy) int {
	for _, c := range p.Commands() {
		if len(c) == 12 && c[1] == openScript.Hash() && c[9] != "" {
			at, err := strconv.Atoi(c[8])
			require.NoError(t, err)
			return at
		}
	}
	return 0
}

func microsOf(t *testing.T, reply any) int {
	parts := reply.([]any)
	seconds, err := strconv.Atoi(parts[0].(string))
	require.NoError(t, err)
	rest, err := strconv.Atoi(parts[1].(string))
	require.NoError(t, err)
	return seconds*1_000_000 + rest
}

func TestNoTwoHoldersWhileTheStoreLosesDataUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for several graces")
	}
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	dsn := "redis://" + master.Addr() + "?addr=" + replica.Addr() + "&session_timeout=2s&read_timeout=500ms&dial_timeout=2s"
	var holders history.Holders
	defer holders.Load(t, 8, func() (*dlock.Client, error) { return dlock.Open("redis", dsn) })()
	for i := range *losses {
		lag := testenv.NewProxy(t, master.Addr(), nil)
		replica.Do("REPLICAOF", "127.0.0.1", lag.Port())
		holders.Await(t)
		lag.Cut()
		holders.Await(t)
		switch kind := (i + rand.N(2)) % 4; kind {
		case 0, 1: // promote the replica; the master follows it
			master.Kill()
			promote(replica)
			master.Restart()
			master.Do("REPLICAOF", "127.0.0.1", portOf(replica))
			master, replica = replica, master
		case 2: // the master is demoted and promoted again
			promote(replica)
			follow(t, master, replica)
			replica.Do("REPLICAOF", "127.0.0.1", portOf(master))
			promote(master)
		case 3:
			master.Kill()
			master.Restart()
		}
		holders.Await(t)
	}
}
