package ensemble

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/recipes"
)

// ZooKeeper's sync requests renew the lease of a waiter. A deposed leader still
// answers these for a while, although the new leader expires the session. The
// tests below check that such answers grant nobody a lock.

// deposable is an ensemble whose leader keeps serving after another was
// elected.
type deposable struct {
	*zktest.Ensemble
	t       *testing.T
	deposed []int    // indexes of the leader and, of five servers, one follower
	at      int      // index of the waiter's server
	others  []string // addresses of the servers that elect another leader
}

// The sessions of the other clients have a longer timeout. Otherwise the
// deposed leader would try to expire them. It would then wait for a quorum and
// answer no more syncs.
const (
	waiterParams = "/w?session_timeout=4s"
	otherParams  = "/w?session_timeout=90s"
)

// onEachDeposedServer runs a test with a waiter on a deposed leader, and again
// with a waiter on a follower of that leader.
func onEachDeposedServer(t *testing.T, test func(d *deposable)) {
	t.Parallel()
	for name, servers := range map[string]int{"the leader": 3, "its follower": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// With this syncLimit, a server that is cut off from the others
			// still answers its clients for 45 s, long enough for the test.
			e := zktest.StartEnsemble(t, servers, zktest.WithConfig(map[string]string{"initLimit": "3", "syncLimit": "90"}))
			d := &deposable{Ensemble: e, t: t, at: e.Leader(t)}
			d.deposed = []int{d.at}
			if servers == 5 {
				d.at = e.Follower(t)
				d.deposed = append(d.deposed, d.at)
			}
			for i, addr := range e.Addrs() {
				if !slices.Contains(d.deposed, i) {
					d.others = append(d.others, addr)
				}
			}
			test(d)
		})
	}
}

// depose cuts off the leader and makes the other servers elect another one.
func (d *deposable) depose() {
	for _, i := range d.deposed {
		for j := range d.Servers {
			if !slices.Contains(d.deposed, j) {
				d.CutLink(i, j)
			}
		}
	}
	restartAllBut(d.Ensemble, d.deposed...)
}

type contender struct {
	client  *dlock.Client
	ended   chan struct{} // closed when the client's first session has expired
	granted chan *dlock.Lock
	failed  chan error
}

// wait opens a client and calls Lock. It returns when the call waits in the
// queue.
func (d *deposable) wait(ctx context.Context, params string, addrs ...string) *contender {
	d.t.Helper()
	c := &contender{ended: make(chan struct{}), granted: make(chan *dlock.Lock, 1), failed: make(chan error, 1)}
	waits, over := make(chan struct{}, 1), make(chan struct{}, 1)
	c.client = open(d.t, dsn(params, addrs...), dlock.WithTrace(&recipes.Trace{
		Waiting: func(context.Context, recipes.WaitingInfo) {
			select {
			case waits <- struct{}{}:
			default:
			}
		},
		SessionEnded: func(context.Context, recipes.SessionEndedInfo) {
			select {
			case over <- struct{}{}:
				close(c.ended)
			default:
			}
		},
	}))
	go func() {
		l, err := c.client.RWMutex("q").Lock(ctx)
		if err != nil {
			c.failed <- err
			return
		}
		c.granted <- l
	}()
	select {
	case <-waits:
	case err := <-c.failed:
		d.t.Fatal(err)
	case <-time.After(bound):
		d.t.Fatal("the contender does not wait")
	}
	return c
}

func (c *contender) lock(t *testing.T) *dlock.Lock {
	t.Helper()
	select {
	case l := <-c.granted:
		return l
	case err := <-c.failed:
		t.Fatal(err)
	case <-time.After(bound):
		t.Fatal("the contender was not granted the lock")
	}
	return nil
}

// After its grant a waiter has a holder's lease, which syncs do not renew.
func TestWaiterThatWasGrantedTheLockIsToldBeforeTheNextGrant(t *testing.T) {
	onEachDeposedServer(t, func(d *deposable) {
		t := d.t
		holder := open(t, dsn(otherParams, d.others...))
		first, err := holder.RWMutex("q").Lock(within(t))
		require.NoError(t, err)
		proxy := zktest.NewProxy(t, d.Servers[d.at].Addr())
		waiter := d.wait(within(t), waiterParams, proxy.Addr())
		awaitHeartbeats(t, proxy, zktest.OpMulti)
		require.NoError(t, first.Unlock())

		h := &handover{holder: waiter.client, lock: waiter.lock(t), stalls: watchStalls(t)}
		lost := make(chan time.Time, 1)
		h.lost = lost
		go func() { <-h.lock.Lost(); lost <- time.Now() }()
		h.next = h.queue(t, "q", dsn(otherParams, d.others...))
		d.depose()
		logMargins(t, "granted after a long wait as the next in line", margins(t, []*handover{h}))
	})
}

// awaitHeartbeats waits until heartbeats have renewed a waiter's lease for
// longer than a session timeout.
func awaitHeartbeats(t *testing.T, proxy *zktest.Proxy, op int32) {
	t.Helper()
	const looked = 2 // by then the session knows whether the waiter is next in line
	sent := func(n int) func() bool {
		before := proxy.Frames(op)
		return func() bool { return proxy.Frames(op) >= before+n }
	}
	eventually(t, "the first heartbeats", sent(looked))
	writes := proxy.Frames(zktest.OpMulti)
	eventually(t, "a session timeout has passed", sent(5))
	if op == zktest.OpSync {
		require.Equal(t, writes, proxy.Frames(zktest.OpMulti))
	}
}

// A waiter receives the events of two releases only after the store has ended
// its session and granted the lock to the next contender. The deposed server's
// answers to syncs still renew the waiter's lease. But before it takes the
// lock, the waiter also needs the answer to a write, which never comes.
//
// The test delivers the events after answers that the server sent later. In the
// order in which they were sent, the events would arrive while the session is
// certainly alive.
func TestLateReleaseEventsOfADeposedServerGrantNoLock(t *testing.T) {
	onEachDeposedServer(t, func(d *deposable) {
		t := d.t
		holder := open(t, dsn(otherParams, d.others...))
		first, err := holder.RWMutex("q").Lock(within(t))
		require.NoError(t, err)
		second := d.wait(within(t), otherParams, d.others...)
		proxy := zktest.NewProxy(t, d.Servers[d.at].Addr())
		ctx, cancel := context.WithCancel(within(t))
		waiter := d.wait(ctx, waiterParams, proxy.Addr())
		next := d.wait(within(t), otherParams, d.others...)
		awaitHeartbeats(t, proxy, zktest.OpSync)

		events := proxy.HoldEvents()
		require.NoError(t, first.Unlock())
		require.NoError(t, second.lock(t).Unlock())
		eventually(t, "the events of both releases", func() bool { return events.Count() == 2 })
		d.depose()
		l := next.lock(t)
		require.False(t, closed(waiter.ended), "the session of the waiter does not know that it has expired")
		writes := proxy.Frames(zktest.OpMulti)
		events.Release()
		select {
		case <-waiter.granted:
			t.Fatalf("the waiter was granted the lock; the other client still holds it: %v", l.Err() == nil)
		case <-waiter.ended:
		case <-time.After(bound):
			t.Fatal("the session of the waiter has not ended")
		}
		require.NoError(t, l.Err())
		require.Greater(t, proxy.Frames(zktest.OpMulti), writes, "it has sent a write, which was not answered")
		cancel()
		select {
		case <-waiter.granted:
			t.Fatal("the waiter was granted the lock after its session had ended")
		case err := <-waiter.failed:
			require.True(t, errors.Is(err, context.Canceled), "%v", err)
		case <-time.After(bound):
			t.Fatal("the waiter's call has not returned")
		}
		require.NoError(t, l.Unlock())
	})
}
