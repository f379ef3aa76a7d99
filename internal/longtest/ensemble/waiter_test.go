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

// A session whose nodes only wait is kept by syncs. A leader that was deposed,
// and its followers, go on answering those for syncLimit ticks, while the new
// leader lets the session expire.

// deposable is an ensemble whose leader can be deposed without knowing it.
type deposable struct {
	*zktest.Ensemble
	t       *testing.T
	deposed []int    // the leader, and perhaps its follower
	at      int      // the one that a waiter is connected to
	others  []string // addresses of those that elect another leader
}

// The sessions of others last longer. A deposed leader that lets one expire
// answers no sync after that, as it waits for the quorum.
const (
	waiterParams = "/w?session_timeout=4s"
	otherParams  = "/w?session_timeout=90s"
)

// onEachDeposedServer runs a test with a waiter on the leader, and with one on
// its follower. A leader with a follower is a minority of five.
func onEachDeposedServer(t *testing.T, test func(d *deposable)) {
	for name, servers := range map[string]int{"the leader": 3, "its follower": 5} {
		t.Run(name, func(t *testing.T) {
			e := zktest.StartEnsemble(t, servers, zktest.WithConfig(map[string]string{"initLimit": "3", "syncLimit": "90"})) // 45s
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

// depose cuts the leader off. The others, which are restarted, elect another one.
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

// contender is a client that waits for a lock.
type contender struct {
	client  *dlock.Client
	ended   chan struct{} // the client's first session has ended
	granted chan *dlock.Lock
	failed  chan error
}

// wait returns once the client waits in the queue.
func (d *deposable) wait(ctx context.Context, params string, addrs ...string) *contender {
	d.t.Helper()
	c := &contender{ended: make(chan struct{}), granted: make(chan *dlock.Lock, 1), failed: make(chan error, 1)}
	waits, over := make(chan struct{}, 1), make(chan struct{}, 1)
	c.client = open(d.t, dsn(params, addrs...), dlock.WithTrace(&dlock.Trace{
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

// The lease of a waiter that was granted the lock is that of a holder: syncs of
// the deposed leader do not renew it.
func TestWaiterThatWasGrantedTheLockIsToldBeforeTheNextGrant(t *testing.T) {
	onEachDeposedServer(t, func(d *deposable) {
		t := d.t
		holder := open(t, dsn(otherParams, d.others...))
		first, err := holder.RWMutex("q").Lock(within(t))
		require.NoError(t, err)
		proxy := zktest.NewProxy(t, d.Servers[d.at].Addr())
		waiter := d.wait(within(t), waiterParams, proxy.Addr())
		restAWhile(t, proxy)
		require.NoError(t, first.Unlock())

		h := &handover{holder: waiter.client, lock: waiter.lock(t)}
		lost := make(chan time.Time, 1)
		h.lost = lost
		go func() { <-h.lock.Lost(); lost <- time.Now() }()
		h.next = h.queue(t, "q", dsn(otherParams, d.others...))
		d.depose()
		logMargins(t, "granted after a long wait", margins(t, []*handover{h}))
	})
}

// restAWhile waits until syncs have renewed the lease of a waiter, long after its
// latest write.
func restAWhile(t *testing.T, proxy *zktest.Proxy) {
	t.Helper()
	writes, syncs := proxy.Frames(zktest.OpMulti), proxy.Frames(zktest.OpSync)
	eventually(t, "a session timeout has passed", func() bool { return proxy.Frames(zktest.OpSync) >= syncs+5 })
	require.Equal(t, writes, proxy.Frames(zktest.OpMulti))
}

// A waiter hears of the release when the store has let its session expire, and
// has granted the next one the lock. The deposed server answers its syncs all the
// time, so that its lease runs. Before it holds the lock it needs the answer to a
// write, and gets none.
//
// This takes an event that other answers overtake. Where all comes in order, the
// news of a release that was committed before the leader was deposed arrive before
// the answers to later syncs, and so while the session surely stands.
func TestReleaseThatADeposedServerTellsLateGrantsNoLock(t *testing.T) {
	onEachDeposedServer(t, func(d *deposable) {
		t := d.t
		holder := open(t, dsn(otherParams, d.others...))
		first, err := holder.RWMutex("q").Lock(within(t))
		require.NoError(t, err)
		proxy := zktest.NewProxy(t, d.Servers[d.at].Addr())
		ctx, cancel := context.WithCancel(within(t))
		waiter := d.wait(ctx, waiterParams, proxy.Addr())
		next := d.wait(within(t), otherParams, d.others...)
		restAWhile(t, proxy)

		events := proxy.HoldEvents()
		require.NoError(t, first.Unlock())
		select {
		case <-events.Held():
		case <-time.After(bound):
			t.Fatal("the server does not tell of the release")
		}
		d.depose()
		l := next.lock(t)
		require.False(t, closed(waiter.ended), "the session of the waiter does not know that it has expired")
		writes := proxy.Frames(zktest.OpMulti)
		events.Release()
		select {
		case <-waiter.granted:
			t.Fatalf("two holders: the waiter was granted the lock, and the lock of the next one stands: %v", l.Err() == nil)
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
			t.Fatal("the waiter goes on")
		}
		require.NoError(t, l.Unlock())
	})
}
