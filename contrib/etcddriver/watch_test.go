package etcddriver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func ended(t *testing.T, w driver.Watch) {
	t.Helper()
	for open := true; open; {
		_, open = testenv.Receive(t, w.C, "the watch ends")
	}
}

func pair(t *testing.T, s driver.Session, queue string) (first, second driver.Joined, w driver.Watch) {
	t.Helper()
	first, second = create(t, s, queue, "h-W-"), create(t, s, queue, "h-W-")
	w, err := s.Watch(within(t), queue, second.Place, first.Node)
	require.NoError(t, err)
	return first, second, w
}

func (l *listener) currentStream() pb.Watch_WatchClient {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stream
}

// A server whose disk hangs still answers progress requests, with an old
// revision.
func TestAStreamThatFallsBehindIsReplaced(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*watchStreams){"hangs": (*watchStreams).silence, "disk hangs": (*watchStreams).hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStore(t, etcdtest.Shared(t), "session_timeout=8s")
			made, err := st.Connect(within(t))
			require.NoError(t, err)
			s := inside(made)
			t.Cleanup(func() { _ = s.Close() })
			_, _, w := pair(t, s, "q")
			first := s.b.listener.currentStream()
			fault(&st.link(made).watches)
			holder := connectTo(t, "etcd://"+st.server.Addr()+"/"+st.prefix)
			third := create(t, holder, "q", "h-W-") // raises the store's revision
			eventually(t, func() bool {
				next := s.b.listener.currentStream()
				return next != nil && next != first
			})
			require.NoError(t, holder.Delete(within(t), "q", third.Place, driver.Changed))
			_, err = raw(t, st.server).Delete(within(t), s.b.settings.root(), clientv3.WithPrefix())
			require.NoError(t, err)
			ended(t, w)
		})
	}
}

func (s opened) followed() int {
	s.b.listener.mu.Lock()
	defer s.b.listener.mu.Unlock()
	return len(s.b.listener.queues)
}

// handles feeds the listener a list, and then an event for the node's key.
func (s opened) handles(t *testing.T, n driver.Joined, list []member, name string, kind mvccpb.Event_EventType, revision int64) {
	t.Helper()
	l, keys, id := s.b.listener, s.b.settings.queueKeys("q"), s.key(t, n.Place)
	l.learn(l.queues["q"], list)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.apply(l.queues["q"], []*mvccpb.Event{
		{Type: kind, Kv: &mvccpb.KeyValue{Key: []byte(keys + id), Value: []byte(nodeValue(name, nil)), CreateRevision: n.Token, ModRevision: revision}},
		{Type: mvccpb.PUT, Kv: &mvccpb.KeyValue{Key: []byte(s.b.settings.released("q")), Value: []byte(id), ModRevision: revision}},
	})
}

// Nodes reuse keys, so an event may concern the key's previous node.
func TestAnEventOfAnEarlierNodeWithTheSameKeyDoesNotCount(t *testing.T) {
	s := connect(t)
	first, _, w := pair(t, s, "q")
	s.handles(t, first, nil, "", mvccpb.DELETE, first.Token-1)
	require.Empty(t, w.C)
	s.handles(t, first, nil, "", mvccpb.DELETE, first.Token+2)
	require.Len(t, w.C, 1, "released")
}

// The first list may still show a node whose removal an event has reported.
func TestAnEventThatOvertakesTheFirstListIsNotMissed(t *testing.T) {
	s := connect(t)
	first, _, w := pair(t, s, "q")
	l := s.b.listener
	f := l.queues["q"]
	id, node := s.key(t, first.Place), f.nodes[s.key(t, first.Place)]
	l.mu.Lock()
	f.live, f.nodes = false, make(map[string]member)
	l.apply(f, []*mvccpb.Event{{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: []byte(s.b.settings.queueKeys("q") + id), ModRevision: first.Token + 2}}})
	l.mu.Unlock()
	l.learn(f, []member{node})
	select {
	case _, open := <-w.C:
		require.False(t, open)
	default:
		t.Fatal("the watch goes on")
	}
}

// A list may show a node's new name before the event about the change arrives.
func TestAListDoesNotHideAnEventThatFollows(t *testing.T) {
	s := connect(t)
	first, _, w := pair(t, s, "q")
	now := member{Place: driver.Place{Node: nodeOf("new-R-", first.Token), Token: first.Token}, id: s.key(t, first.Place), created: first.Token}
	s.handles(t, first, []member{now}, "new-R-", mvccpb.PUT, first.Token+2)
	select {
	case _, open := <-w.C:
		require.False(t, open)
	default:
		t.Fatal("the watch goes on")
	}
}

func TestAListFromBeforeTheWatchDoesNotCount(t *testing.T) {
	s := connect(t)
	s.b.listener.queues["q"] = &followed{queue: "q", ids: []int64{7}, opening: 1, nodes: make(map[string]member)}
	_, err := s.List(within(t), "q")
	require.NoError(t, err)
	require.False(t, s.b.Listening("q", false))
}

// The waiter's own node may have been removed while there was no stream.
func TestAReleaseAfterALostStreamOnlyMakesTheWaiterLook(t *testing.T) {
	s, link := linked(t)
	first, _, w := pair(t, s, "q")
	l, before := s.b.listener, link.wire.total()
	l.lose()
	eventually(t, func() bool { return link.wire.total() > before+1 }) // the session has listed the queue, and polls
	link.proxy.Cut()
	defer link.proxy.Heal()
	l.mu.Lock()
	f := l.queues["q"]
	f.ids, f.opening, f.nodes = []int64{77}, 1, map[string]member{s.key(t, first.Place): {Place: first.Place, created: first.Token}}
	l.byID[77] = f
	l.mu.Unlock()
	require.True(t, l.pass(&pb.WatchResponse{WatchId: 77, Created: true}))
	s.handles(t, first, nil, "", mvccpb.DELETE, first.Token+2)
	cause, open := <-w.C
	require.False(t, open, "%v", cause)
}

func TestAStreamOnWhichAWatchHasEndedIsReplaced(t *testing.T) {
	s := connect(t)
	_, _, w := pair(t, s, "q")
	defer w.Stop()
	l := s.b.listener
	id := l.queues["q"].ids[0]
	require.False(t, l.pass(&pb.WatchResponse{WatchId: id, Canceled: true, CompactRevision: 1}))
	require.False(t, l.pass(&pb.WatchResponse{WatchId: -1, Created: true, Canceled: true}))
	require.True(t, l.pass(&pb.WatchResponse{WatchId: id + 1, Canceled: true}), "this session has closed the watch")
}

func TestASessionStopsFollowingAQueueThatItDoesNotUse(t *testing.T) {
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix())
	_, _, w := pair(t, s, "q")
	l := s.b.listener
	l.stopUnused(within(t), 0)
	require.Equal(t, 1, s.followed(), "a watch is open")
	w.Stop()
	l.stopUnused(within(t), stopAfter)
	require.Equal(t, 1, s.followed(), "a watch was open a moment ago")
	l.stopUnused(within(t), 0)
	require.Zero(t, s.followed())
}

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
		s.b.listener.stopUnused(within(t), 0)
		testenv.Receive(t, (<-lives).Done(), "the stream ends")
	}
	require.Empty(t, refused)
}

func TestASessionWithALongTimeoutStopsFollowingAQueue(t *testing.T) {
	t.Parallel()
	s := connect(t)
	w, err := s.WatchQueue(within(t), "q")
	require.NoError(t, err)
	w.Stop()
	eventually(t, func() bool { return s.followed() == 0 })
}

// A session that uses many queues must not leave a key in each of them.
func TestASessionLeavesNoKeyInAQueueThatItStopsFollowing(t *testing.T) {
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix()+"?"+longSession)
	keys := func() int64 {
		reply, err := raw(t, server).Get(within(t), s.b.settings.root(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return reply.Count - 1 // without the key of the layout
	}
	w, err := s.WatchQueue(within(t), "q") // makes Delete announce the release
	require.NoError(t, err)
	j := create(t, s, "q", "h-W-")
	w.Stop()
	q := s.b.listener.queues["q"]
	before := q.used
	require.NoError(t, s.Delete(within(t), "q", j.Place, driver.Released))
	require.EqualValues(t, 1, keys())
	require.NotEqual(t, before, q.used)
	s.b.listener.stopUnused(within(t), 0)
	eventually(t, func() bool { return keys() == 0 })
}

func waitFarBehind(t *testing.T, n int) {
	before := farBehind
	farBehind = n
	t.Cleanup(func() { farBehind = before })
}

// line puts a waiter behind four nodes of another session. l is the waiter's
// link.
func line(t *testing.T) (holder opened, ahead []driver.Joined, waiter opened, last driver.Joined, l *link) {
	t.Helper()
	st := newStore(t, etcdtest.Shared(t), longSession)
	connect := func() opened {
		s, err := st.Connect(within(t))
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return inside(s)
	}
	holder, waiter = connect(), connect()
	for range 4 {
		ahead = append(ahead, create(t, holder, "q", "h-W-"))
	}
	last = joinLast(t, waiter)
	return holder, ahead, waiter, last, st.link(waiter.Session)
}

func joinLast(t *testing.T, s driver.Session) driver.Joined {
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
	for name, change := range map[string]func(holder opened, p driver.Place, waiter opened, own driver.Place) error{
		"the node ahead is released": func(holder opened, p driver.Place, _ opened, _ driver.Place) error {
			return holder.Delete(within(t), "q", p, driver.Released)
		},
		"the node ahead is replaced": func(holder opened, p driver.Place, _ opened, _ driver.Place) error {
			_, err := holder.Replace(within(t), "q", p, "other-W-")
			return err
		},
		"its own node is removed": func(_ opened, _ driver.Place, waiter opened, own driver.Place) error {
			return removeNode(within(t), raw(t, etcdtest.Shared(t)), waiter.b.settings.queueKeys("q"), own.Name)
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
	holder.follow(t, "q")
	l := waiter.b.listener
	far, stream := l.queues["q"], l.currentStream()
	require.Len(t, far.ids, 2)
	whole, err := waiter.WatchQueue(within(t), "q")
	require.NoError(t, err)
	require.Len(t, l.byID, 1, "the watches of the two nodes are closed")
	require.Equal(t, stream, l.currentStream(), "the same stream")
	require.NoError(t, holder.Delete(within(t), "q", ahead[0].Place, driver.Changed))
	ended(t, whole)
	require.NoError(t, holder.Delete(within(t), "q", ahead[3].Place, driver.Released))
	require.Equal(t, driver.Released, <-last.Watch.C)
}
