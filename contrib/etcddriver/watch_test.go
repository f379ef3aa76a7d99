package etcddriver

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func ended(t *testing.T, w driver.Watch) {
	t.Helper()
	for {
		select {
		case _, open := <-w.C:
			if !open {
				return
			}
		case <-within(t).Done():
			t.Fatal("the watch has not ended")
		}
	}
}

// pair creates two nodes in the queue. It returns both nodes and the second
// node's watch on the first.
func pair(t *testing.T, s *session, queue string) (first, second driver.Joined, w driver.Watch) {
	t.Helper()
	first, second = create(t, s, queue, "h-W-"), create(t, s, queue, "h-W-")
	w, err := s.Watch(within(t), queue, second.Place, first.Node)
	require.NoError(t, err)
	return first, second, w
}

func TestAWatchSurvivesACompactionOfWhatItHasMissed(t *testing.T) {
	server := etcdtest.Start(t)
	p := testenv.NewProxy(t, server.Addr(), nil)
	s := connectTo(t, "etcd://"+p.Addr()+"/locks?session_timeout=1m")
	_, second, w := pair(t, s, "q")
	_, err := s.WatchQueue(within(t), "q")
	require.NoError(t, err)

	p.Refuse()
	p.DropConnections()
	server.Etcdctl("del", "--prefix", "locks/q//")
	revision := raw(t, server)
	reply, err := revision.Put(within(t), "other", "x")
	require.NoError(t, err)
	server.Etcdctl("compact", strconv.FormatInt(reply.Header.Revision, 10))
	p.Heal()
	ended(t, w)
	require.ErrorIs(t, s.Delete(within(t), "q", second.Place, driver.Released), driver.ErrGone)
}

// The session must replace a watch stream whose server hangs, even while other
// servers still answer requests.
func TestASilentStreamIsReplaced(t *testing.T) {
	t.Parallel()
	st := newStore(t, etcdtest.Shared(t), "session_timeout=8s")
	made, err := st.Connect(within(t))
	require.NoError(t, err)
	s := made.(*session)
	t.Cleanup(func() { _ = s.Close() })
	_, _, w := pair(t, s, "q")
	s.stream.begin() // forget the replies received so far
	eventually(t, func() bool {
		s.stream.mu.Lock()
		defer s.stream.mu.Unlock()
		return s.stream.revision > 0
	})

	number := s.stream.number.Load()
	st.link(s).watches.silence()
	eventually(t, func() bool { return s.stream.number.Load() > number })
	_, err = raw(t, st.server).Delete(within(t), s.settings.root(), clientv3.WithPrefix())
	require.NoError(t, err)
	ended(t, w)
}

// A follower whose disk hangs applies no changes. It still answers progress
// requests, but the old revision in its replies gives it away.
func TestAStreamThatFallsBehindIsReplaced(t *testing.T) {
	t.Parallel()
	st := newStore(t, etcdtest.Shared(t), "session_timeout=8s")
	made, err := st.Connect(within(t))
	require.NoError(t, err)
	s := made.(*session)
	t.Cleanup(func() { _ = s.Close() })
	_, _, w := pair(t, s, "q")
	number := s.stream.number.Load()
	st.link(s).watches.hang()
	_, err = raw(t, st.server).Delete(within(t), s.settings.root(), clientv3.WithPrefix())
	require.NoError(t, err)
	ended(t, w)
	require.Greater(t, s.stream.number.Load(), number)
}

// A server may report its progress before it sends older events (etcd issue
// 15220). A watch resumed after the reported revision would skip them.
func TestAStreamThatWasLostIsNotResumed(t *testing.T) {
	st := newStore(t, etcdtest.Shared(t), longSession)
	made, err := st.Connect(within(t))
	require.NoError(t, err)
	s := made.(*session)
	t.Cleanup(func() { _ = s.Close() })
	_, _, w := pair(t, s, "q")
	_, _, other := pair(t, s, "other") // another queue on the same stream
	l := st.link(s)

	q, _, err := s.queueWatch("other", nil)
	require.NoError(t, err)
	number := s.stream.number.Load()
	q.mu.Lock()
	lost := q.news
	q.mu.Unlock()
	q.restart() // losing a single watch does not end the other watches
	<-lost
	require.NoError(t, q.waitLive(within(t)))
	require.Equal(t, number, s.stream.number.Load())

	l.watches.overtake()
	reply, err := raw(t, st.server).Delete(within(t), s.settings.root(), clientv3.WithPrefix())
	require.NoError(t, err)
	eventually(t, func() bool {
		s.checkStream()
		return l.watches.progress() >= reply.Header.Revision
	})
	l.proxy.DropConnections()
	ended(t, w)
	ended(t, other)
}

func TestASessionStopsFollowingAQueueThatItDoesNotUse(t *testing.T) {
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix())
	_, _, w := pair(t, s, "q")
	q, fresh, err := s.queueWatch("q", nil)
	require.NoError(t, err)
	require.False(t, fresh)
	q.stopIfUnused(0)
	require.Len(t, s.followed(), 1, "a watch is open")
	w.Stop()
	q.stopIfUnused(stopAfter)
	require.Len(t, s.followed(), 1, "a watch was open a moment ago")
	q.stopIfUnused(0)
	require.Empty(t, s.followed())

	first, second, w := pair(t, s, "q") // follows the queue again
	require.NoError(t, s.Delete(within(t), "q", first.Place, driver.Released))
	select {
	case cause := <-w.C:
		require.Equal(t, driver.Released, cause)
	case <-time.After(60 * time.Second):
		t.Fatal("no news")
	}
	require.NoError(t, s.Delete(within(t), "q", second.Place, driver.Changed))
	ended(t, w)
}

// The client library closes a stream when its last watch ends. The session must
// then open a new stream for its next watch, because an attempt on the closed
// stream would fail and delay the watch.
func TestASessionThatFollowsAQueueAgainBeginsAStream(t *testing.T) {
	server, lives, refused := etcdtest.Shared(t), make(chan context.Context, 10), make(chan error, 10)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix()+"?"+longSession, grpc.WithStreamInterceptor(func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, conn, method, opts...)
		switch {
		case err != nil:
			refused <- err
		case method == "/etcdserverpb.Watch/Watch":
			lives <- stream.Context()
		}
		return stream, err
	}))
	for range 3 {
		w, err := s.WatchQueue(within(t), "q")
		require.NoError(t, err)
		w.Stop()
		s.followed()[0].stopIfUnused(0)
		<-(<-lives).Done()
	}
	require.Empty(t, refused)
}

func TestASessionWithALongTimeoutStopsFollowingAQueue(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix()+"?"+longSession)
	w, err := s.WatchQueue(within(t), "q")
	require.NoError(t, err)
	w.Stop()
	eventually(t, func() bool { return len(s.followed()) == 0 })
}

// A session may live long and use many queues, so it must not leave a key in
// each of them.
func TestASessionLeavesNoKeyInAQueueThatItStopsFollowing(t *testing.T) {
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix()+"?"+longSession)
	keys := func() int64 {
		reply, err := raw(t, server).Get(within(t), s.settings.root(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return reply.Count
	}
	w, err := s.WatchQueue(within(t), "q") // makes Delete announce the release
	require.NoError(t, err)
	j := create(t, s, "q", "h-W-")
	w.Stop()
	q := s.followed()[0]
	before := q.used
	require.NoError(t, s.Delete(within(t), "q", j.Place, driver.Released))
	require.EqualValues(t, 1, keys())
	// Delete must mark the queue as used. If the session stopped following the
	// queue before the release arrived, the key would stay.
	require.NotEqual(t, before, q.used)
	q.stopIfUnused(0)
	eventually(t, func() bool { return keys() == 0 })
}

// etcd serves a watch from a past revision only every 100 ms, so the driver
// first starts its watch at the current revision and then lists the queue. No
// removal may be missed in between.
func TestNothingIsMissedBetweenTheListAndTheWatch(t *testing.T) {
	server := etcdtest.Shared(t)
	prefix := server.Prefix()
	a, b := connectTo(t, "etcd://"+server.Addr()+"/"+prefix), connectTo(t, "etcd://"+server.Addr()+"/"+prefix)
	for i := range 50 {
		queue := "q" + strconv.Itoa(i)
		first, second := create(t, a, queue, "h-W-"), create(t, b, queue, "h-W-")
		removed := make(chan error, 1)
		go func() { removed <- a.Delete(within(t), queue, first.Place, driver.Released) }()
		w, err := b.Watch(within(t), queue, second.Place, first.Node)
		require.NoError(t, err)
		require.NoError(t, <-removed)
		select {
		case <-w.C: // C receives the release or is closed
		case <-within(t).Done():
			t.Fatal("the removal was missed")
		}
		w.Stop()
	}
}

func waitFarBehind(t *testing.T, n int) {
	before := farBehind
	farBehind = n
	t.Cleanup(func() { farBehind = before })
}

// line opens two sessions, holder and waiter. holder creates four nodes, and
// waiter creates a node that waits behind them. l is the link of waiter.
func line(t *testing.T) (holder *session, ahead []driver.Joined, waiter *session, last driver.Joined, l *link) {
	t.Helper()
	st := newStore(t, etcdtest.Shared(t), longSession)
	connect := func() *session {
		s, err := st.Connect(within(t))
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s.(*session)
	}
	holder, waiter = connect(), connect()
	for range 4 {
		ahead = append(ahead, create(t, holder, "q", "h-W-"))
	}
	last = joinLast(t, waiter)
	return holder, ahead, waiter, last, st.link(waiter)
}

func joinLast(t *testing.T, s *session) driver.Joined {
	t.Helper()
	j, err := s.Create(within(t), "q", driver.NodeSpec{
		Prefix: "w-W-", Predecessor: func(ahead []driver.Node) int { return len(ahead) - 1 },
	})
	require.NoError(t, err)
	require.NotNil(t, j.Watch.C)
	return j
}

func TestAWaiterFarBehindReceivesOnlyWhatConcernsIt(t *testing.T) {
	waitFarBehind(t, 3)
	for name, change := range map[string]func(holder *session, p driver.Place, waiter *session, own driver.Place) error{
		"the node ahead is released": func(holder *session, p driver.Place, _ *session, _ driver.Place) error {
			return holder.Delete(within(t), "q", p, driver.Released)
		},
		"the node ahead is replaced": func(holder *session, p driver.Place, _ *session, _ driver.Place) error {
			_, err := holder.Replace(within(t), "q", p, "other-W-")
			return err
		},
		"its own node is removed": func(_ *session, _ driver.Place, waiter *session, own driver.Place) error {
			return removeNode(within(t), raw(t, etcdtest.Shared(t)), waiter.settings.queueKeys("q"), own.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			holder, ahead, waiter, last, l := line(t)
			require.Equal(t, 3, l.wire.total(), "Connect reads once, Create makes the node and lists the queue")
			for _, j := range ahead[:3] {
				require.NoError(t, holder.Delete(within(t), "q", j.Place, driver.Released))
			}
			behind := create(t, holder, "q", "h-W-")
			require.NoError(t, holder.Delete(within(t), "q", behind.Place, driver.Changed))
			require.NoError(t, change(holder, ahead[3].Place, waiter, last.Place))
			ended(t, last.Watch)
			require.EqualValues(t, 1, l.watches.events.Load())
			require.Equal(t, 3, l.wire.total())
		})
	}
}

func TestAWaiterFarBehindSeesWhatItMissesWhileItsStreamIsLost(t *testing.T) {
	waitFarBehind(t, 3)
	holder, ahead, _, last, l := line(t)
	l.proxy.Refuse()
	l.proxy.DropConnections()
	require.NoError(t, holder.Delete(within(t), "q", ahead[3].Place, driver.Released))
	l.proxy.Heal()
	ended(t, last.Watch)
}

func TestASessionWithAWaiterFarBehindFollowsTheQueueForAnother(t *testing.T) {
	waitFarBehind(t, 3)
	holder, ahead, waiter, last, _ := line(t)
	w, err := holder.WatchQueue(within(t), "q") // makes Delete announce the release
	require.NoError(t, err)
	defer w.Stop()
	far, number := waiter.followed()[0], waiter.stream.number.Load()
	require.NotNil(t, far.far)
	whole, err := waiter.WatchQueue(within(t), "q")
	require.NoError(t, err)
	eventually(t, func() bool { return far.life.Err() != nil })
	require.Equal(t, number, waiter.stream.number.Load(), "the same stream")
	require.NoError(t, holder.Delete(within(t), "q", ahead[0].Place, driver.Changed))
	ended(t, whole)
	require.NoError(t, holder.Delete(within(t), "q", ahead[3].Place, driver.Released))
	require.Equal(t, driver.Released, <-last.Watch.C)
}
