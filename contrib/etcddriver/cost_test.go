package etcddriver

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// longSession makes heartbeats too rare to appear among counted requests.
const longSession = "session_timeout=1h"

type contender struct {
	*dlock.RWMutex
	session *backend
	wire    *wire
}

func (s *store) contender(t *testing.T) contender {
	c := s.client(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	return contender{c.RWMutex("q"), inside(s.last).b, &s.links[s.last].wire}
}

// wait calls lock in the background, and returns once the watch is armed.
func (c contender) wait(t *testing.T, lock func(context.Context) (*dlock.Lock, error)) <-chan *dlock.Lock {
	granted := make(chan *dlock.Lock, 1)
	go func() {
		l, err := lock(within(t))
		if err == nil {
			granted <- l
		}
		close(granted)
	}()
	eventually(t, func() bool { return c.session.listener.host.Watched("q") && c.session.Listening("q", false) })
	return granted
}

func receive(t *testing.T, granted <-chan *dlock.Lock) *dlock.Lock {
	t.Helper()
	l, _ := testenv.Receive(t, granted, "the lock is granted")
	require.NotNil(t, l)
	return l
}

// handOver unlocks held once next waits. It counts the requests of both
// contenders.
func handOver(t *testing.T, from contender, held *dlock.Lock, next contender) (l *dlock.Lock, released, waited int) {
	beforeFrom, beforeNext := from.wire.total(), next.wire.total()
	granted := next.wait(t, next.Lock)
	require.NoError(t, held.Unlock())
	l = receive(t, granted)
	return l, from.wire.total() - beforeFrom, next.wire.total() - beforeNext
}

// Sessions that have never waited in the queue cost extra requests in the first
// rounds.
func TestAHandOverTakesNoRequestOfTheNextHolder(t *testing.T) {
	s := newStore(t, etcdtest.Shared(t), longSession)
	a, b := s.contender(t), s.contender(t)
	began := time.Now()
	held, err := a.Lock(within(t))
	require.NoError(t, err)
	for round, want := range []int{3, 2, 1, 1, 1, 1} {
		granted := time.Now()
		l, released, waited := handOver(t, a, held, b)
		if time.Since(began) < 300*time.Millisecond {
			require.Equal(t, 1, released, "the holder, round %d", round)
			require.Equal(t, want, waited, "the waiter, round %d", round)
		} else { // after 300 ms, holders also list the queue
			require.LessOrEqual(t, released, 2, "the holder, round %d", round)
			require.LessOrEqual(t, waited, want+1, "the waiter, round %d", round)
		}
		held, a, b, began = l, b, a, granted
	}
	require.NoError(t, held.Unlock())
}

type counted struct {
	net.Conn
	writes *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// With gRPC's default flow control, a client pings for nearly every event.
func TestASessionThatFollowsAQueueSendsNothing(t *testing.T) {
	server := etcdtest.Shared(t)
	dsn := "etcd://" + server.Addr() + "/" + server.Prefix() + "?" + longSession
	writes := new(atomic.Int64)
	follower := connectTo(t, dsn, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", server.Addr())
		return counted{conn, writes}, err
	}))
	follower.follow(t, "q")

	other := connectTo(t, dsn)
	before := writes.Load()
	for range 50 {
		j := create(t, other, "q", "h-W-")
		require.NoError(t, other.Delete(within(t), "q", j.Place, driver.Released))
		eventually(t, func() bool { // the release has reached the follower
			l := follower.b.listener
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.revision > j.Token && len(l.queues["q"].nodes) == 0
		})
	}
	require.Less(t, writes.Load()-before, int64(10)) // gRPC may ping on a slow machine
}

func TestASessionHasOneConnectionToEachServer(t *testing.T) {
	server := etcdtest.Shared(t)
	var proxies []*testenv.Proxy
	var addrs []string
	for range 3 {
		p := testenv.NewProxy(t, server.Addr(), nil)
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	s := connectTo(t, "etcd://"+strings.Join(addrs, ",")+"/"+server.Prefix()+"?"+longSession)
	var group sync.WaitGroup
	for i := range 30 {
		group.Go(func() {
			queue := fmt.Sprint("q", i%3)
			j, err := s.Create(within(t), queue, driver.NodeSpec{Prefix: "h-W-"})
			if !assert.NoError(t, err) {
				return
			}
			w, err := s.WatchQueue(within(t), queue)
			if assert.NoError(t, err) {
				defer w.Stop()
			}
			assert.NoError(t, s.Delete(within(t), queue, j.Place, driver.Changed))
		})
	}
	group.Wait()
	eventually(t, func() bool {
		return !slices.ContainsFunc(proxies, func(p *testenv.Proxy) bool { return p.Connections() != 1 })
	})
}

func TestAllWatchesOfASessionShareAStream(t *testing.T) {
	s := newStore(t, etcdtest.Shared(t), longSession)
	made, err := s.Connect(within(t))
	require.NoError(t, err)
	defer made.Close()
	before := s.server.Metric("etcd_debugging_mvcc_watch_stream_total", "")
	for _, queue := range []string{"a", "b", "c"} {
		first := create(t, made, queue, "h-W-")
		second := create(t, made, queue, "h-W-")
		w, err := made.Watch(within(t), queue, second.Place, first.Node)
		require.NoError(t, err)
		defer w.Stop()
	}
	require.Equal(t, before+1, s.server.Metric("etcd_debugging_mvcc_watch_stream_total", ""))
}
