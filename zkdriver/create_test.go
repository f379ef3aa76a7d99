package zkdriver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestContenderIsAnEphemeralChildOfTheQueuesPath(t *testing.T) {
	b := newFixture(t, "")
	p, err := b.Create(within(t), "stock/42", driver.NodeSpec{Prefix: "web1-W-", Data: []byte("data")})
	require.NoError(t, err)
	require.Equal(t, "web1-W-0000000000", p.Name)
	require.True(t, p.Alone())
	data, stat, err := b.raw.Get(b.chroot + "/stock/42/web1-W-0000000000")
	require.NoError(t, err)
	require.Equal(t, "data\n#dlock guarded", string(data))
	require.Equal(t, p.Token, stat.Czxid)
	require.Equal(t, b.conn.SessionID(), stat.EphemeralOwner)
	_, parent, err := b.raw.Exists(b.chroot + "/stock/42")
	require.NoError(t, err)
	require.Equal(t, p.Epoch, parent.Czxid)

	second, err := b.Create(within(t), "stock/42", driver.NodeSpec{Prefix: "web1-R-", Data: []byte("data 2")})
	require.NoError(t, err)
	require.Equal(t, "web1-R-0000000001", second.Name)
	require.False(t, second.Alone())
	require.Greater(t, second.Token, p.Token)
}

func TestNegativeSequencesDoNoHarm(t *testing.T) {
	b := newFixture(t, "")
	require.True(t, b.pastEnd("h-W-", driver.Place{Node: nodeAt("/q/h-W--2147483648", 2, 1)}))
	require.True(t, b.pastEnd("h-W-", driver.Place{Node: nodeAt("/q/h-W-2147483647", 2, 1)}))
	require.True(t, b.pastEnd("h-W-", driver.Place{Node: nodeAt("/q/", 2, 1)}))
	require.False(t, b.pastEnd("h-W-", driver.Place{Node: nodeAt("/q/h-W-0000000007", 2, 1)}))
	nodes := sorted([]string{"h-W-10000000000", "h-W--2147483648", "x", "h-W-99999999999999999999", "h-R-0000000002", "-1", ""}, 7)
	require.Equal(t, []driver.Node{
		{Name: "h-W-10000000000", Seq: 0, Epoch: 7}, // only the last ten digits are the sequence
		{Name: "h-R-0000000002", Seq: 2, Epoch: 7},
		{Name: "h-W--2147483648", Seq: 2147483648, Epoch: 7},
		{Name: "h-W-99999999999999999999", Seq: 9999999999, Epoch: 7},
	}, nodes)
}

func TestAQueueThatIsNotWrittenKeepsItsData(t *testing.T) {
	for name, c := range map[string]struct {
		data  string
		perms int32
	}{"has data": {"theirs", zk.PermAll}, "may not be written": {"", zk.PermAll &^ zk.PermWrite}} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "")
			_, err := b.raw.Create(b.chroot+"/q", []byte(c.data), 0, zk.WorldACL(c.perms))
			require.NoError(t, err)
			b.mustCreate("q", "h-W-", "1")
			before := b.requests()
			p := b.mustCreate("q", "h-W-", "2")
			require.Equal(t, 3, b.requests()-before)
			_, stat, err := b.raw.Exists(b.chroot + "/q/" + p.Name)
			require.NoError(t, err)
			require.Equal(t, stat.Czxid, p.Token)
			data, stat, err := b.raw.Get(b.chroot + "/q")
			require.NoError(t, err)
			require.Equal(t, c.data, string(data))
			require.Equal(t, stat.Czxid, p.Epoch)
			require.NoError(t, b.Delete(within(t), "q", p, driver.Changed))
		})
	}
}

func TestMissingPermissionIsNamed(t *testing.T) {
	b := newFixture(t, "")
	for queue, perms := range map[string]int32{"CREATE": zk.PermAll &^ zk.PermCreate, "READ": zk.PermAll &^ zk.PermRead, "DELETE": zk.PermAll &^ zk.PermDelete} {
		_, err := b.raw.Create(b.chroot+"/"+queue, nil, 0, zk.WorldACL(perms))
		require.NoError(t, err)
		p, err := create(within(t), b, queue, "h-W-", []byte("x"))
		if queue == "DELETE" {
			require.NoError(t, err)
			err = b.Delete(within(t), queue, p, driver.Changed)
			require.ErrorContains(t, b.another("").Remove(within(t), queue, p), "this needs DELETE on the queue")
		}
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "this needs "+queue)
		require.ErrorContains(t, err, b.chroot+"/"+queue)
		if queue == "CREATE" {
			for _, below := range []string{"CREATE/below", "CREATE/far/below"} {
				_, err := create(within(t), b, below, "h-W-", []byte("x"))
				require.ErrorIs(t, err, zk.ErrNoAuth)
				require.ErrorContains(t, err, "this needs CREATE on its parent")
			}
		}
	}
}

func TestDataThatFitsNoRequestIsRefusedHere(t *testing.T) {
	b := newFixture(t, "")
	_, err := create(within(t), b, "q", "h-W-", make([]byte, 1<<20))
	require.ErrorContains(t, err, "jute.maxbuffer")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	p := b.mustCreate("q", "h-W-", string(make([]byte, maxData)))
	_, err = b.Replace(within(t), "q", p, "h-R-")
	require.NoError(t, err)
	require.NoError(t, b.Err())
}

func TestSearchForAnOrphanReadsNoOlderNodes(t *testing.T) {
	b := newFixture(t, "session_timeout=20s")
	for i := range 30 {
		b.mustCreate("q", "h-W-", fmt.Sprint(i))
	}
	for _, lose := range []func(func(int32) bool) <-chan struct{}{b.proxy.LoseReply, b.proxy.LoseRequest} {
		gets := b.proxy.Frames(zktest.OpGetData)
		lost := lose(zktest.Op(zktest.OpMulti))
		_, err := create(within(t), b, "q", "h-W-", []byte("lost"))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		closed(t, "the answer is lost", lost)
		b.cleanedUp()
		require.Len(t, b.nodes("q"), 30)
		require.LessOrEqual(t, b.proxy.Frames(zktest.OpGetData)-gets, 1)
	}
}

// After a reconnect, the new server may not show the node before a Sync.
func TestSearchForAnOrphanWaitsForASync(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=20s")
	require.NoError(t, b.Delete(within(t), "q", b.mustCreate("q", "h-W-", "warm"), driver.Changed))
	lists := b.proxy.Frames(zktest.OpGetChildren2)
	lost := b.proxy.LoseReply(zktest.Op(zktest.OpMulti))
	hold := b.proxy.HoldReplies(zktest.Op(zktest.OpSync))
	_, err := create(within(t), b, "q", "h-W-", []byte("lost"))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	closed(t, "the answer is lost", lost)
	closed(t, "the Sync is answered", hold.Held())
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, lists, b.proxy.Frames(zktest.OpGetChildren2), "the queue was listed before the Sync was answered")
	hold.Release()
	eventually(t, "the queue is empty", func() bool { return len(b.nodes("q")) == 0 })
}

func TestACreateWithTooLittleOfTheLeaseLeavesNothing(t *testing.T) {
	b := newFixture(t, "session_timeout=1m")
	b.warm("q")
	leasehook.Skew(b.conn.Lease(), 43*time.Second) // of 45 s
	_, err := create(within(t), b, "q", "h-W-", []byte("late"))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.Empty(t, b.nodes("q"))
}

func TestManyNewQueuesAreMadeAtTheSameTime(t *testing.T) {
	const queues = 20
	b := newFixture(t, "")
	// Every call must ask for its queue before any call creates a container.
	looked := b.proxy.Frames(zktest.OpGetData)
	looks := b.proxy.HoldReplies(zktest.Op(zktest.OpGetData))
	answers := b.proxy.HoldReplies(zktest.Op(zktest.OpCreateContainer))
	var calls errgroup.Group
	for i := range queues {
		calls.Go(func() error {
			_, err := create(within(t), b, fmt.Sprintf("new%d", i), "h-W-", []byte("x"))
			return err
		})
	}
	eventually(t, "a look at each queue", func() bool {
		return b.proxy.Frames(zktest.OpGetData) == looked+queues
	})
	looks.Release()
	eventually(t, "a request for each container", func() bool {
		return b.proxy.Frames(zktest.OpCreateContainer) == queues
	})
	answers.Release()
	require.NoError(t, calls.Wait())
}

// A Stat does not show whether a node is a container, so count requests.
func TestQueuesAreContainersWhereTheServerHasThem(t *testing.T) {
	b := newFixture(t, "")
	b.mustCreate("some/new/server", "h-W-", "x")
	require.Equal(t, 2, b.proxy.Frames(zktest.OpCreateContainer)) // the first fails because the parent is missing
	require.Equal(t, 2, b.proxy.Frames(zktest.OpCreate))
	b.queues.noContainers.Store(true)
	b.mustCreate("some/old/server", "h-W-", "x")
	require.Equal(t, 2, b.proxy.Frames(zktest.OpCreateContainer))
	require.Equal(t, 5, b.proxy.Frames(zktest.OpCreate))
	require.Len(t, b.nodes("some/old/server"), 1)
}

func TestAnExceededQuotaIsNamed(t *testing.T) {
	server := zktest.Start(t, zktest.WithConfig(map[string]string{"enforceQuota": "true"}))
	raw := server.Raw(t)
	for _, n := range [][2]string{
		{"/locks", ""}, {"/zookeeper/quota/locks", ""},
		{"/zookeeper/quota/locks/zookeeper_limits", "count=2,bytes=-1=;byteHardLimit=-1;countHardLimit=2"},
		{"/zookeeper/quota/locks/zookeeper_stats", "count=1,bytes=0"},
	} {
		_, err := raw.Create(n[0], []byte(n[1]), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	client, err := dlock.Open("zk", "zk://"+server.Addr()+"/locks")
	require.NoError(t, err)
	defer client.Close()
	_, err = client.RWMutex("q").Lock(within(t))
	require.ErrorContains(t, err, "quota of this path or one above it is exceeded")
	require.NotErrorIs(t, err, dlock.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}
