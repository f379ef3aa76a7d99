package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func (s opened) key(t *testing.T, p driver.Place) string {
	t.Helper()
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	n := s.b.own[p.Token]
	require.NotNil(t, n)
	return nodeID(s.b.id, n.number)
}

// New keys would slow down lists, which visit all keys since a compaction.
func TestALockUsesTheKeyOfTheLockBefore(t *testing.T) {
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix())
	a, b := create(t, s, "q", "h-W-"), create(t, s, "q", "h-W-")
	keys := []string{s.key(t, a.Place), s.key(t, b.Place)}
	require.NotEqual(t, keys[0], keys[1])
	for range 3 {
		require.NoError(t, s.Delete(within(t), "q", a.Place, driver.Released))
		next := create(t, s, "q", "h-W-")
		require.Equal(t, keys[0], s.key(t, next.Place))
		require.Greater(t, next.Token, b.Token)
		require.Equal(t, []driver.Node{b.Node}, next.Ahead)
		a, b, keys[0], keys[1] = b, next, keys[1], keys[0]
	}
	require.NoError(t, s.Delete(within(t), "q", a.Place, driver.Changed))
	require.NoError(t, s.Delete(within(t), "q", b.Place, driver.Changed))
	require.Empty(t, s.b.numbers, "the session keeps nothing for a queue that it has left")
}

func TestANodeNeverTakesAKeyThatACancellationRemoves(t *testing.T) {
	s, link := linked(t)
	w := &link.wire
	cancel, cancelled := make(chan struct{}), make(chan struct{})
	w.play(matching(faults.OpCreate), func(_ context.Context, _ string, _ any, send func() error) {
		w.play(matching(faults.OpCleanUp), func(ctx context.Context, _ string, _ any, send func() error) {
			defer close(cancelled)
			select {
			case <-cancel:
				_ = send()
			case <-ctx.Done(): // the test has failed
			}
		})
		_ = send()
	})
	_, err := s.Create(within(t), "q", driver.NodeSpec{Prefix: "h-W-", Data: []byte("lost")})
	require.ErrorIs(t, err, driver.ErrUnavailable)

	second := create(t, s, "q", "h-W-")
	close(cancel)
	<-cancelled
	s.has(t, second.Node)

	// The first cancellation got no reply, so the driver must retry it.
	eventually(t, func() bool {
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		return len(s.b.numbers["q"].free) == 1
	})
	create(t, s, "q", "h-W-")
	nodes, err := s.List(within(t), "q")
	require.NoError(t, err)
	require.Len(t, nodes, 2)
}

// A late Delete removes whatever node has the key by then.
func TestANodeNeverTakesAKeyThatALateDeleteRemoves(t *testing.T) {
	s, link := linked(t)
	removed := create(t, s, "q", "h-W-")
	arrive := link.holdRequest(t, etcdtest.Shared(t), faults.OpDelete)
	eventually(t, func() bool {
		return !errors.Is(s.Delete(within(t), "q", removed.Place, driver.Released), driver.ErrUnavailable)
	})
	require.Empty(t, s.b.numbers, "the session keeps nothing for a queue that it has left")

	next := create(t, s, "q", "h-W-")
	arrive()
	s.has(t, next.Node)
}

// A second, late Delete would remove a later node with the same key.
func TestANodeNeverTakesAKeyThatASecondDeleteRemoves(t *testing.T) {
	s, link := linked(t)
	w := &link.wire
	removed := create(t, s, "q", "h-W-")
	sending, send := make(chan struct{}), make(chan struct{})
	w.play(matching(faults.OpDelete), func(_ context.Context, _ string, _ any, pass func() error) {
		close(sending)
		<-send
		_ = pass()
	})
	second := make(chan error, 1)
	go func() { second <- s.Delete(within(t), "q", removed.Place, driver.Changed) }()
	<-sending
	require.NoError(t, s.Delete(within(t), "q", removed.Place, driver.Changed))

	next := create(t, s, "q", "h-W-")
	close(send)
	require.NoError(t, <-second) // not ErrGone: its first attempt may have succeeded
	s.has(t, next.Node)
}

func TestAKeyIsFreeAfterTwoDeletesOfItsNode(t *testing.T) {
	s := connect(t)
	for range 20 {
		j := create(t, s, "q", "h-W-")
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				if err := s.Delete(within(t), "q", j.Place, driver.Changed); err != nil {
					assert.ErrorIs(t, err, driver.ErrGone)
				}
			})
		}
		calls.Wait()
		require.Empty(t, s.b.numbers)
	}
}

func TestAReleaseAfterAnOperatorFindsTheNodeGone(t *testing.T) {
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix()+"?"+longSession)
	s.follow(t, "q")
	j := create(t, s, "q", "h-W-")
	server.Etcdctl("del", s.b.settings.queueKeys("q")+s.key(t, j.Place))
	require.ErrorIs(t, s.Delete(within(t), "q", j.Place, driver.Released), driver.ErrGone)
}

// The lost first attempt of a cancellation may arrive after its retry.
func TestANodeNeverTakesAKeyThatALateCancellationRemoves(t *testing.T) {
	s, link := linked(t)
	held := make(chan func())
	link.wire.play(matching(faults.OpCreate), func(_ context.Context, _ string, _ any, send func() error) {
		held <- link.holdRequest(t, etcdtest.Shared(t), faults.OpCleanUp)
		_ = send()
	})
	go func() {
		_, err := s.Create(within(t), "q", driver.NodeSpec{Prefix: "h-W-", Data: []byte("lost")})
		assert.ErrorIs(t, err, driver.ErrUnavailable)
	}()
	arrive := <-held
	eventually(t, func() bool { // the second cancellation was answered
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		return s.b.numbers["q"] == nil
	})
	next := create(t, s, "q", "h-W-")
	arrive()
	s.has(t, next.Node)
}

// Callers retry Create while etcd is full, so records of refused Creates would
// pile up.
func TestARefusedCreateIsNotCancelled(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.WithArgs("--quota-backend-bytes", "2000000"))
	s := connectTo(t, "etcd://"+server.Addr()+"/locks?"+longSession)
	held := create(t, s, "held", "h-W-")
	s.follow(t, "followed")
	followed := create(t, s, "followed", "h-W-")
	fill(t, server)

	_, err := s.Create(within(t), "q", driver.NodeSpec{Prefix: "h-W-", Data: []byte("refused")})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "space exceeded")
	s.leavesNothing(t, "q")

	// A full etcd can't store an announcement, but must still release locks.
	require.NoError(t, s.Delete(within(t), "held", held.Place, driver.Released))
	require.ErrorIs(t, s.Delete(within(t), "followed", followed.Place, driver.Released), driver.ErrUnavailable)
	require.NoError(t, s.Delete(within(t), "followed", followed.Place, driver.Changed))
}

// etcd checks its space twice, so it may make the node and answer ErrNoSpace.
func TestACreateThatEtcdMakesAndRefusesLeavesNothing(t *testing.T) {
	refuse := true
	s := connectThrough(t, func(request, _ any, send func() error) error {
		err := send()
		if isCreate(request) && refuse && err == nil {
			refuse = false
			return rpctypes.ErrGRPCNoSpace
		}
		return err
	})
	_, err := s.Create(within(t), "q", driver.NodeSpec{Prefix: "h-W-"})
	require.ErrorContains(t, err, "space exceeded")
	require.False(t, refuse)
	s.leavesNothing(t, "q")
}

// Without space, etcd can't store the key that cancels a lost Create.
func TestALostCreateLeavesNothingIfThereIsNoSpace(t *testing.T) {
	server := etcdtest.Start(t, etcdtest.WithArgs("--quota-backend-bytes", "2000000"))
	st := newStore(t, server, longSession)
	made, err := st.Connect(within(t))
	require.NoError(t, err)
	defer made.Close()
	st.link(made).wire.play(matching(faults.OpCreate), func(_ context.Context, _ string, _ any, send func() error) {
		assert.NoError(t, send())
		fill(t, server)
	})
	_, err = made.Create(within(t), "q", driver.NodeSpec{Prefix: "h-W-"})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	eventually(t, func() bool {
		nodes, err := made.List(within(t), "q")
		return err == nil && len(nodes) == 0
	})
}

// The second execution of the transaction finds the node of the first one.
func TestACreateThatAProxySendsTwiceReturnsTheNode(t *testing.T) {
	twice := true
	s := connectThrough(t, func(request, _ any, send func() error) error {
		if isCreate(request) && twice {
			twice = false
			_ = send()
		}
		return send()
	})
	j := create(t, s, "q", "h-W-")
	require.False(t, twice)
	require.Empty(t, j.Ahead, "a node does not wait for itself")
	s.has(t, j.Node)
	info, err := s.Read(within(t), "q", j.Name)
	require.NoError(t, err)
	require.Equal(t, j.Token, info.Token)
	require.NoError(t, s.Delete(within(t), "q", j.Place, driver.Changed))
	s.leavesNothing(t, "q")
}

// The test writes the key that makes etcd reject Creates.
func TestACreateThatIsRejectedIsSentAgain(t *testing.T) {
	server := etcdtest.Shared(t)
	s := connectTo(t, "etcd://"+server.Addr()+"/"+server.Prefix()+"?"+longSession)
	for _, queue := range []string{"a", "b"} {
		_, err := raw(t, server).Put(within(t), s.b.settings.cancelled(s.b.id), "")
		require.NoError(t, err)
		require.True(t, create(t, s, queue, "h-W-").Alone())
	}
}

// A broken connection may leave many nodes that block the lock.
func TestUnansweredCreatesAreRemovedTogether(t *testing.T) {
	const unanswered = 1000
	server := etcdtest.Shared(t)
	prefix, proxy := server.Prefix(), testenv.NewProxy(t, server.Addr(), nil)
	broken, late := make(chan struct{}), make(chan *pb.TxnRequest, unanswered)
	var creates, cleanUps atomic.Int64
	s := connectTo(t, "etcd://"+proxy.Addr()+"/"+prefix+"?"+longSession, intercepted(func(request, _ any, send func() error) error {
		if isCreate(request) {
			if creates.Add(1)%2 == 0 {
				late <- request.(*pb.TxnRequest)
			} else {
				_ = send()
			}
			<-broken
			return errBroken
		}
		if matching(faults.OpCleanUp)("", request) || matching(faults.OpDelete)("", request) {
			cleanUps.Add(1)
		}
		return send()
	}))
	var calls sync.WaitGroup
	for i := range unanswered {
		calls.Go(func() {
			_, err := s.Create(context.Background(), "q", driver.NodeSpec{Prefix: "h-W-", Data: fmt.Append(nil, i)})
			assert.ErrorIs(t, err, driver.ErrUnavailable)
		})
	}
	eventually(t, func() bool { return creates.Load() == unanswered })
	proxy.DropConnections()
	close(broken)
	calls.Wait()
	s.leavesNothing(t, "q")
	require.LessOrEqual(t, cleanUps.Load(), int64(20)) // 8 batches of 127, and retries

	client := pb.NewKVClient(raw(t, server).ActiveConnection())
	for range unanswered / 2 {
		_, err := client.Txn(within(t), <-late)
		require.NoError(t, err)
	}
	require.True(t, create(t, connectTo(t, "etcd://"+server.Addr()+"/"+prefix), "q", "h-W-").Alone())
	reply, err := raw(t, server).Get(within(t), s.b.settings.cancelled(s.b.id), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.LessOrEqual(t, len(reply.Kvs), 1)
	require.Empty(t, s.b.numbers)
}

// leavesNothing requires that the queue becomes empty once all failed Creates
// are removed.
func (s opened) leavesNothing(t *testing.T, queue string) {
	t.Helper()
	eventually(t, func() bool {
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		return s.b.numbers[queue] == nil
	})
	nodes, err := s.List(within(t), queue)
	require.NoError(t, err)
	require.Empty(t, nodes)
}

func isCreate(request any) bool { return matching(faults.OpCreate)("", request) }

func fill(t *testing.T, server *etcdtest.Server) {
	t.Helper()
	client := raw(t, server)
	for i := range 100 {
		_, err := client.Put(within(t), fmt.Sprint("fill", i), strings.Repeat("x", 300_000))
		if err != nil {
			require.ErrorContains(t, err, "space exceeded")
			return
		}
	}
	t.Fatal("there is no limit")
}
