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

// A deposed leader answers sync requests, but not writes, which alone renew a
// waiter's lease.

// deposable is an ensemble whose leader keeps serving after another was
// elected.
type deposable struct {
	*zktest.Ensemble
	t       *testing.T
	deposed []int    // the leader and, of five servers, one follower
	at      int      // index of the waiter's server
	others  []string // addresses of the servers that elect another leader
}

// Other sessions outlast the test, because a deposed leader that expires one
// stops answering syncs.
const (
	waiterParams = "/w?session_timeout=4s"
	otherParams  = "/w?session_timeout=90s"
)

// onEachDeposedServer runs a test with a waiter on a deposed leader and on its
// follower.
func onEachDeposedServer(t *testing.T, test func(d *deposable)) {
	t.Parallel()
	for name, servers := range map[string]int{"the leader": 3, "its follower": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// With this syncLimit, a server that is cut off answers clients for
			// 45 s.
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

func (d *deposable) depose() {
	d.cutOff()
	d.elect()
}

func (d *deposable) cutOff() {
	for _, i := range d.deposed {
		for j := range d.Servers {
			if !slices.Contains(d.deposed, j) {
				d.CutLink(i, j)
			}
		}
	}
}

func (d *deposable) elect() { restartAllBut(d.Ensemble, d.deposed...) }

type contender struct {
	client  *dlock.Client
	ended   chan struct{} // closed when the client's first session has expired
	granted chan *dlock.Lock
	failed  chan error
}

// wait calls Lock with a new client, and returns when the call waits.
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

// held returns a lock, a waiter on the server d.at, and the waiter's proxy.
func (d *deposable) held(ctx context.Context) (*dlock.Lock, *contender, *zktest.Proxy) {
	d.t.Helper()
	first, err := open(d.t, dsn(otherParams, d.others...)).RWMutex("q").Lock(within(d.t))
	require.NoError(d.t, err)
	proxy := zktest.NewProxy(d.t, d.Servers[d.at].Addr())
	waiter := d.wait(ctx, waiterParams, proxy.Addr())
	before := proxy.Frames(zktest.OpMulti)
	eventually(d.t, "a session timeout has passed", func() bool { return proxy.Frames(zktest.OpMulti) >= before+3 })
	return first, waiter, proxy
}

// holdBack unlocks the lock, but withholds the event from the waiter until
// release.
func holdBack(t *testing.T, proxy *zktest.Proxy, l *dlock.Lock) (release func()) {
	t.Helper()
	events := proxy.HoldEvents()
	require.NoError(t, l.Unlock())
	eventually(t, "the event of the release", func() bool { return events.Count() == 1 })
	return events.Release
}

func TestWaiterThatWasGrantedTheLockIsToldBeforeTheNextGrant(t *testing.T) {
	onEachDeposedServer(t, func(d *deposable) {
		t := d.t
		first, waiter, _ := d.held(within(t))
		require.NoError(t, first.Unlock())

		h := &handover{holder: waiter.client, lock: waiter.lock(t), stalls: watchStalls(t)}
		lost := make(chan time.Time, 1)
		h.lost = lost
		go func() { <-h.lock.Lost(); lost <- time.Now() }()
		h.next = h.queue(t, "q", dsn(otherParams, d.others...))
		d.depose()
		logMargins(t, "granted after a long wait", margins(t, []*handover{h}))
	})
}

// The event of the release reaches the waiter only after its server was cut
// off.
func TestWaiterGrantedByADeposedServerIsToldBeforeTheNextGrant(t *testing.T) {
	onEachDeposedServer(t, func(d *deposable) {
		t := d.t
		first, waiter, proxy := d.held(within(t))
		next := d.wait(within(t), otherParams, d.others...)
		release := holdBack(t, proxy, first)
		d.cutOff()
		lists := proxy.Frames(zktest.OpGetChildren2)
		release()
		l := waiter.lock(t)
		require.Equal(t, lists, proxy.Frames(zktest.OpGetChildren2), "the grant needs no list")
		lost := make(chan time.Time, 1)
		go func() { <-l.Lost(); lost <- time.Now() }()
		d.elect()
		after := next.lock(t)
		granted := time.Now()
		require.ErrorIs(t, l.Err(), dlock.ErrLost)
		require.Greater(t, after.Token(), l.Token())
		margin := granted.Sub(<-lost)
		t.Logf("from Lost to the next grant %v", margin.Round(time.Millisecond))
		require.Positive(t, margin)
		require.NoError(t, after.Unlock())
	})
}

// The waiter gets the event only after the store has ended its session.
func TestALateReleaseEventOfADeposedServerGrantsNoLock(t *testing.T) {
	onEachDeposedServer(t, func(d *deposable) {
		t := d.t
		ctx, cancel := context.WithCancel(within(t))
		first, waiter, proxy := d.held(ctx)
		next := d.wait(within(t), otherParams, d.others...)
		release := holdBack(t, proxy, first)
		d.depose()
		l := next.lock(t)
		release()
		select {
		case <-waiter.granted:
			t.Fatalf("the waiter was granted the lock; the other client still holds it: %v", l.Err() == nil)
		case <-waiter.ended:
		case <-time.After(bound):
			t.Fatal("the session of the waiter has not ended")
		}
		require.NoError(t, l.Err())
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
