package etcddriver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestHistoriesAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("records histories")
	}
	t.Parallel()
	server := etcdtest.Start(t)
	c := conformance{server: server, lenient: true}
	history.Run(t, history.Store{
		Of:     "etcd",
		Config: c.config(t),
		Outage: func(*testing.T) (mend func()) {
			server.Kill()
			return server.Restart
		},
	})
}

func TestHistoriesOnAnEnsembleWithoutItsLeaderAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("records histories")
	}
	t.Parallel()
	ensemble := etcdtest.StartEnsemble(t, 3)
	made := 0
	history.Run(t, history.Store{
		Of: "etcd ensemble",
		Config: dlocktest.Config{
			SessionTimeout: 2 * time.Second,
			New: func(t *testing.T) driver.Connector {
				made++
				c, err := Driver{}.OpenConnector(fmt.Sprintf("etcd://%s/h%d?session_timeout=2s", strings.Join(ensemble.Addrs(), ","), made))
				require.NoError(t, err)
				return c
			},
		},
		Outage: func(t *testing.T) (mend func()) {
			leader := ensemble.Servers[ensemble.Leader(t)]
			leader.Kill()
			return leader.Restart
		},
	})
}

var rounds = flag.Int("rounds", 1, "how many times as long servers fail")

func TestAServerThatIsKilledUnderLoadMakesNoTwoHolders(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	var holders history.Holders
	defer holders.Load(t, 6, func() (*dlock.Client, error) {
		return dlock.Open("etcd", "etcd://"+server.Addr()+"/locks?session_timeout=5s")
	})()
	holders.Await(t)
	for range 4 * *rounds {
		server.Kill()
		server.Restart()
		holders.Await(t)
	}
}

func TestAnEnsembleThatLosesServersMakesNoTwoHolders(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
	t.Parallel()
	ensemble := etcdtest.StartEnsemble(t, 3)
	var holders history.Holders
	defer holders.Load(t, 6, func() (*dlock.Client, error) {
		return dlock.Open("etcd", "etcd://"+strings.Join(ensemble.Addrs(), ",")+"/locks?session_timeout=5s")
	})()
	holders.Await(t)
	for range *rounds {
		ensemble.MoveLeader(t)
		holders.Await(t)

		leader := ensemble.Servers[ensemble.Leader(t)]
		leader.Kill()
		holders.Await(t) // the other two servers keep the cluster going
		leader.Restart()

		follower := ensemble.Servers[(ensemble.Leader(t)+1)%3]
		follower.Pause() // its connections stay open
		holders.Await(t)
		follower.Resume()
	}
}

// Pauses beyond the session timeout are not tested, because of etcd issue
// 15247.
func TestALeaderThatIsPausedUnderLoadMakesNoTwoHolders(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
	t.Parallel()
	const timeout = 20 * time.Second
	ensemble := etcdtest.StartEnsemble(t, 3)
	var holders history.Holders
	defer holders.Load(t, 6, func() (*dlock.Client, error) {
		return dlock.Open("etcd", "etcd://"+strings.Join(ensemble.Addrs(), ",")+"/locks?session_timeout=20s")
	})()
	holders.Await(t)
	for range 2 * *rounds {
		leader := ensemble.Servers[ensemble.Leader(t)]
		before, paused := holders.Grants(), time.Now()
		leader.Pause()
		ensemble.Leader(t) // the other two servers elect a leader
		for holders.Grants() < before+3 && time.Since(paused) < timeout/2 {
			time.Sleep(10 * time.Millisecond)
		}
		leader.Resume()
		t.Logf("%d grants during a pause of %v", holders.Grants()-before, time.Since(paused))
		holders.Await(t)
	}
}

// A new leader restarts every lease.
func TestASessionSurvivesANewLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
	t.Parallel()
	ensemble := etcdtest.StartEnsemble(t, 3)
	s := connectTo(t, "etcd://"+strings.Join(ensemble.Addrs(), ",")+"/locks?session_timeout=1m")
	j := create(t, s, "q", "h-W-")
	ensemble.Servers[ensemble.Leader(t)].Kill()
	ensemble.Leader(t)
	eventually(t, func() bool { return beat(within(t), s) == nil })
	require.NoError(t, s.Err())
	require.NoError(t, s.Delete(within(t), "q", j.Place, driver.Released))
}

// Copying back a stopped server's files acts like restoring a backup.
func TestARestoredBackupEndsTheSession(t *testing.T) {
	t.Parallel()
	server, s, _ := restored(t)
	eventually(t, func() bool { return errors.Is(beat(within(t), s), errRestored) })
	require.ErrorIs(t, errRestored, driver.ErrSessionEnded)
	require.NoError(t, connectTo(t, "etcd://"+server.Addr()+"/locks").Err())
}

// Another session's node hides the restore by raising the revision to its old
// value.
func TestANodeInARestoredBackupIsNotTakenForTheOwn(t *testing.T) {
	t.Parallel()
	server, s, lost := restored(t)
	require.Equal(t, lost.Place, create(t, connectTo(t, "etcd://"+server.Addr()+"/locks?session_timeout=1m"), "q", "h-W-").Place)
	var w driver.Watch
	eventually(t, func() (ok bool) {
		var err error
		w, err = s.Watch(within(t), "q", lost.Place)
		return err == nil
	})
	ended(t, w)
}

func TestTwoClustersAreNotOneStore(t *testing.T) {
	t.Parallel()
	a, b := etcdtest.Start(t), etcdtest.Start(t)
	c, err := Driver{}.OpenConnector("etcd://" + a.Addr() + "," + b.Addr() + "/locks?session_timeout=1m")
	require.NoError(t, err)
	s, err := c.Connect(within(t))
	if err == nil {
		defer s.Close()
		eventually(t, func() bool { err = beat(within(t), inside(s)); return errors.Is(err, driver.ErrSessionEnded) })
		<-s.Done()
	}
	require.ErrorContains(t, err, "another etcd cluster")
}

// restored restores a backup that is older than the session's node.
func restored(t *testing.T) (*etcdtest.Server, opened, driver.Joined) {
	server := etcdtest.Start(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/locks?session_timeout=1m")
	server.Kill()
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.CopyFS(backup, os.DirFS(server.DataDir())))
	server.Restart()
	eventually(t, func() bool { return beat(within(t), s) == nil })
	lost := create(t, s, "q", "h-W-")
	server.Kill()
	require.NoError(t, os.RemoveAll(server.DataDir()))
	require.NoError(t, os.CopyFS(server.DataDir(), os.DirFS(backup)))
	server.Restart()
	return server, s, lost
}

// Both servers die once, because either may serve the session's heartbeats.
func TestASessionSurvivesTheDeathOfAServer(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	one, other := testenv.NewProxy(t, server.Addr(), nil), testenv.NewProxy(t, server.Addr(), nil)
	s := connectTo(t, "etcd://"+one.Addr()+","+other.Addr()+"/"+server.Prefix()+"?session_timeout=1m")
	j := create(t, s, "q", "h-W-")
	for _, dies := range []*testenv.Proxy{one, other} {
		require.NoError(t, beat(within(t), s))
		dies.Refuse()
		dies.DropConnections()
		eventually(t, func() bool { return beat(within(t), s) == nil })
		dies.Heal()
		eventually(t, func() bool { return dies.Connections() > 0 })
	}
	require.NoError(t, s.Err())
	require.NoError(t, s.Delete(within(t), "q", j.Place, driver.Released))
}

// A learner refuses all of a session's requests, so another server must answer.
func TestALearnerAmongTheServersIsPassedOver(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	learner := server.Learner(t)
	for range 4 { // round robin varies which requests meet the learner
		s := connectTo(t, "etcd://"+learner.Addr()+","+server.Addr()+"/locks?"+longSession)
		ahead, _, w := pair(t, s, "q")
		require.NoError(t, s.Delete(within(t), "q", ahead.Place, driver.Changed))
		ended(t, w)
		eventually(t, func() bool { return beat(within(t), s) == nil })
		require.NoError(t, s.Close())
	}
	c, err := Driver{}.OpenConnector("etcd://" + learner.Addr() + "/locks")
	require.NoError(t, err)
	_, err = c.Connect(within(t))
	require.ErrorContains(t, err, "learner")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

// A load balancer may keep a connection open after its server has gone.
func TestASilentConnectionIsReplacedInTime(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	gone := testenv.NewProxy(t, server.Addr(), nil)
	balancer := testenv.NewProxy(t, gone.Addr(), nil)
	s := connectTo(t, "etcd://"+balancer.Addr()+"/"+server.Prefix()+"?session_timeout=10s")
	gone.Cut()
	defer gone.Heal()
	balancer.Retarget(server.Addr())
	eventually(t, func() bool { _, err := s.List(within(t), "q"); return err == nil || s.Err() != nil })
	require.NoError(t, s.Err())
}

func TestEachAddressOfAHostIsTried(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	port := testenv.NewProxy(t, server.Addr(), nil).Port()
	silent, err := net.Listen("tcp", net.JoinHostPort("127.0.0.3", port))
	if err != nil && runtime.GOOS != "linux" {
		t.Skip("the loopback interface has one address: ", err)
	}
	require.NoError(t, err)
	defer silent.Close()
	c, err := Driver{}.OpenConnector("etcd://etcd.example:" + port + "/" + server.Prefix() + "?" + longSession)
	require.NoError(t, err)
	c.(*connector).settings.lookup = func(context.Context, string) ([]string, error) {
		return []string{"127.0.0.3", "127.0.0.1"}, nil
	}
	for range 2 { // the first may reach only the silent server
		s, failed := c.Connect(within(t))
		if err = failed; err == nil {
			require.NoError(t, s.Close())
		}
	}
	require.NoError(t, err)
}

// Requests fail within seconds even if the session timeout is an hour.
func TestASilentConnectionIsNoDeadlineOfTheCaller(t *testing.T) {
	t.Parallel()
	st := newStore(t, etcdtest.Shared(t), longSession)
	s, err := st.Connect(within(t))
	require.NoError(t, err)
	defer s.Close()
	st.link(s).proxy.Cut()
	defer st.link(s).proxy.Heal()
	_, err = s.List(within(t), "q")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "no answer within 2.5s")
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}

// The server may have received a request that a proxy gave up on.
func TestARequestThatAProxyGivesUpIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, answer := range []codes.Code{codes.Canceled, codes.DeadlineExceeded} {
		var sent atomic.Int64
		s := connectThrough(t, func(request, _ any, send func() error) error {
			err := send()
			if isCreate(request) {
				sent.Add(1)
				return status.Error(answer, "given up by a proxy")
			}
			return err
		})
		_, err := s.Create(within(t), "q", driver.NodeSpec{Prefix: "h-W-", Data: []byte("lost")})
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "given up by a proxy")
		require.EqualValues(t, 1, sent.Load())
	}
}

// A follower whose disk hangs answers pings and keep-alives, but sends no
// events.
func TestAFollowerWhoseDiskHangsKeepsNoWaiter(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
	t.Parallel()
	etcdtest.RequireHangingDisk(t)
	ensemble := etcdtest.StartEnsemble(t, 3, etcdtest.WithHangingDisk())
	dsn := "etcd://" + strings.Join(ensemble.Addrs(), ",") + "/locks?session_timeout=8s"
	var watches []driver.Watch
	for i := range 6 { // the follower serves two of these watches
		_, _, w := pair(t, connectTo(t, dsn), fmt.Sprint("q", i))
		watches = append(watches, w)
	}
	leader := ensemble.Leader(t)
	ensemble.Servers[(leader+1)%3].HangDisk()
	_, err := raw(t, ensemble.Servers[leader]).Delete(within(t), "locks/", clientv3.WithPrefix())
	require.NoError(t, err)
	for _, w := range watches {
		ended(t, w)
	}
	for range 3 {
		connectTo(t, dsn)
	}
}

// With plain round robin, the hung server would get every third request.
func TestAHungServerCostsOneRequest(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	var proxies []*testenv.Proxy
	var addrs []string
	for range 3 {
		p := testenv.NewProxy(t, server.Addr(), nil)
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	var used sync.Map // addresses that have answered
	s := connectTo(t, "etcd://"+strings.Join(addrs, ",")+"/"+server.Prefix()+"?"+longSession, grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		var to peer.Peer
		err := invoke(ctx, method, request, reply, conn, append(opts, grpc.Peer(&to))...)
		if err == nil {
			used.Store(to.Addr.String(), nil)
		}
		return err
	}))
	list := func() error { _, err := s.List(within(t), "q"); return err }
	eventually(t, func() bool {
		_, ready := used.Load(addrs[0])
		return ready || list() != nil
	})
	proxies[0].Cut()
	defer proxies[0].Heal()
	eventually(t, func() bool { return list() != nil })
	for range 9 {
		require.NoError(t, list())
	}
	_, _, w := pair(t, s, "q")
	defer w.Stop()
}
