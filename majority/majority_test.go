package majority_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/majority"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

var bg = context.Background()

var errRefused = errors.New("no permission")

// soon is longer, in virtual time, than any background work takes.
const soon = time.Second

type stores struct {
	*testing.T
	all      []*memdriver.Store
	requests atomic.Int64 // requests other than Connect and Close
	sessions sync.Map     // latest driver.Session by names like "web1 0"
}

type recorder struct {
	driver.Connector
	keep func(driver.Session)
}

func (r recorder) Connect(ctx context.Context) (driver.Session, error) {
	s, err := r.Connector.Connect(ctx)
	if err == nil {
		r.keep(s)
	}
	return s, err
}

func inStores(t *testing.T, n int, f func(w *stores)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &stores{T: t}
		for range n {
			w.all = append(w.all, memdriver.New())
		}
		t.Cleanup(func() {
			synctest.Wait()
			for i, s := range w.all {
				require.Zero(t, s.Stats().Nodes, "nodes left in store %d", i)
				require.Zero(t, s.Stats().Sessions, "sessions left in store %d", i)
			}
		})
		f(w)
	})
}

func (w *stores) clients(host string, opts ...dlock.Option) (clients []*dlock.Client) {
	for i, s := range w.all {
		recorded := recorder{s, func(s driver.Session) { w.sessions.Store(fmt.Sprint(host, " ", i), s) }}
		counting := faults.New(recorded, func(_ context.Context, r faults.Request) faults.Fault {
			if r.Stage == faults.StageRequest && r.Op != faults.OpConnect && r.Op != faults.OpClose {
				w.requests.Add(1)
			}
			return faults.Fault{}
		})
		c := dlock.NewClient(counting, append(opts, dlock.WithHostname(host))...)
		w.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return clients
}

func (w *stores) majority(host string) *majority.Mutex { return mutex(w.clients(host)...) }

func mutex(clients ...*dlock.Client) *majority.Mutex {
	return &majority.Mutex{Name: "q", Clients: clients}
}

func (w *stores) lock(m *majority.Mutex) *majority.Lock {
	w.Helper()
	l, err := m.Lock(bg)
	require.NoError(w, err)
	return l
}

// locking calls Lock on a goroutine, and returns once the call is blocked or
// done.
func (w *stores) locking(m *majority.Mutex) <-chan *majority.Lock {
	granted := make(chan *majority.Lock, 1)
	go func() {
		l, err := m.Lock(bg)
		assert.NoError(w, err)
		granted <- l
	}()
	synctest.Wait()
	return granted
}

func (w *stores) expire(store int) {
	w.all[store].Faults().ExpireAll()
	synctest.Wait()
}

func TestMajorityTakesAllStoresThatCanBeReached(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		m := w.majority("web1")
		l := w.lock(m)
		require.NoError(t, l.Err())
		assert.Equal(t, []int64{1, 1, 1}, l.Tokens())
		require.NoError(t, l.Unlock())
		require.ErrorIs(t, l.Unlock(), dlock.ErrNotHeld)
		require.ErrorIs(t, l.Err(), dlock.ErrNotHeld)
		assert.EqualValues(t, 6, w.requests.Load(), "a Create and a Delete in each store")
		l = w.lock(m)
		require.NoError(t, l.Unlock())
		assert.EqualValues(t, 6+6, w.requests.Load())
	})
}

func TestMajorityWithThreeOfFiveStoresAwayIsUnavailable(t *testing.T) {
	inStores(t, 5, func(w *stores) {
		for i := range 3 {
			defer w.all[i].Faults().Down()()
		}
		m := w.majority("web1")
		_, err := m.TryLock(bg)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, dlock.ErrTimeout)
		require.NotErrorIs(t, err, dlock.ErrLocked)
		limited, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		_, err = m.Lock(limited)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, err, dlock.ErrTimeout)
		assert.ErrorContains(t, err, "3 are needed")
	})
}

func TestMajoritySurvivesTheLossOfAMinority(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		m := w.majority("web1")
		l := w.lock(m)
		ctx := l.Context(bg)
		w.expire(0)
		up := w.all[0].Faults().Down()
		require.NoError(t, l.Err())
		require.NoError(t, ctx.Err())
		_, err := w.majority("web2").TryLock(bg)
		require.ErrorIs(t, err, dlock.ErrLocked)
		time.Sleep(time.Hour)
		up()
		time.Sleep(time.Minute)
		w.expire(1)
		require.NoError(t, l.Err(), "it was taken in the first store again")
		require.NoError(t, l.Unlock(), "it was held to the end")
		require.Error(t, ctx.Err())
	})
}

// Taking the forgotten locks again must not hide the loss of the majority.
func TestAHolderThatStoresHaveForgottenIsLost(t *testing.T) {
	inStores(t, 5, func(w *stores) {
		for i := 1; i < 5; i++ {
			w.all[i] = memdriver.New(memdriver.WithSessionTimeout(time.Hour))
		}
		l := w.lock(w.majority("web1"))
		time.Sleep(soon) // wait until the holder watches its nodes
		for i := range 3 {
			s, _ := w.sessions.Load(fmt.Sprint("web1 ", i))
			if i > 0 {
				heal := w.all[i].Faults().CutOff(s.(driver.Session))
				time.AfterFunc(10*time.Minute, heal)
			}
			w.all[i].Faults().Drop(s.(driver.Session))
		}
		other := w.lock(w.majority("web2"))
		require.NoError(t, other.Unlock())
		time.Sleep(5 * time.Minute)
		require.NoError(t, l.Err(), "it does not know yet")
		time.Sleep(10 * time.Minute)
		require.ErrorIs(t, l.Err(), dlock.ErrLost)
		require.ErrorIs(t, l.Unlock(), dlock.ErrLost)
	})
}

func TestMajorityGivesTheStoreThatOthersWaitForBackLast(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		var order []int
		var mu sync.Mutex
		var clients []*dlock.Client
		for i, s := range w.all {
			clients = append(clients, dlock.NewClient(s, dlock.WithTrace(&recipes.Trace{
				Released: func(context.Context, recipes.ReleasedInfo) {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				},
			})))
			w.Cleanup(func() { _ = clients[i].Close() })
		}
		l := w.lock(mutex(clients...))
		require.NoError(t, l.Unlock())
		require.Len(t, order, 4)
		assert.Equal(t, []int{0, 0}, order[2:], "its lock in the first store, and then the whole")
	})
}

func TestMajorityRefusesWrongClients(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		c := w.clients("web1")
		closed := dlock.NewClient(w.all[2])
		require.NoError(t, closed.Close())
		twin := w.clients("web2")[0]
		for name, test := range map[string]struct {
			clients []*dlock.Client
			text    string
			is      error
		}{
			"none":               {nil, "0 clients, want an odd number, at least 3", nil},
			"an even number":     {append(w.clients("web3"), c[0]), "4 clients, want an odd number, at least 3", nil},
			"one client twice":   {[]*dlock.Client{c[0], c[1], c[0]}, "client 3 is nil or given twice", nil},
			"one store twice":    {[]*dlock.Client{c[0], c[1], twin}, "two clients use one store", nil},
			"a closed client":    {[]*dlock.Client{c[0], c[1], closed}, "closed", dlock.ErrClosed},
			"a client never had": {[]*dlock.Client{c[0], nil, c[2]}, "client 2 is nil or given twice", nil},
		} {
			m := mutex(test.clients...)
			for call, lock := range map[string]func(context.Context) (*majority.Lock, error){"Lock": m.Lock, "TryLock": m.TryLock} {
				l, err := lock(bg)
				require.Nil(t, l, "%s, %s", name, call)
				require.ErrorContains(t, err, test.text, "%s, %s", name, call)
				if test.is != nil {
					require.ErrorIs(t, err, test.is, "%s, %s", name, call)
				}
			}
		}
		_, err := (&majority.Mutex{Name: "a//b", Clients: c}).Lock(bg)
		require.ErrorIs(t, err, dlock.ErrBadName)
	})
}

func TestMajorityEndsWithItsContext(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		for _, s := range w.all[1:] { // another contender holds two of three stores
			other, err := s.Connect(bg)
			require.NoError(t, err)
			defer other.Close()
			_, err = other.Create(bg, "q", driver.NodeSpec{Prefix: "web1-W-"})
			require.NoError(t, err)
		}
		limited, stop := context.WithTimeout(bg, 3*time.Second)
		defer stop()
		_, err := w.majority("web2").Lock(limited)
		require.ErrorIs(t, err, dlock.ErrTimeout)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "held by web1-W-")
		for _, reason := range []error{errors.New("reason"), context.Canceled} {
			ctx, cancel := context.WithCancelCause(bg)
			time.AfterFunc(3*time.Second, func() { cancel(reason) })
			_, err = w.majority("web3").Lock(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, reason)
			require.NotErrorIs(t, err, dlock.ErrTimeout)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
		}
	})
}

func TestASilentMinorityDelaysAGrantOnlyBriefly(t *testing.T) {
	inStores(t, 5, func(w *stores) {
		m := w.majority("web1")
		l := w.lock(m)
		require.NoError(t, l.Unlock())
		defer w.all[3].Faults().Down()() // silent, but its sessions have not ended yet
		defer w.all[4].Faults().Down()()
		began := time.Now()
		l = w.lock(m)
		assert.Less(t, time.Since(began), 200*time.Millisecond)
		assert.Equal(t, []int64{2, 2, 2, 0, 0}, l.Tokens())
		require.NoError(t, l.Unlock())
	})
}

func TestAStoreThatFallsSilentDuringAHoldDoesNotDelayTheNextHolder(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		l := w.lock(w.majority("web1"))
		second := w.majority("web2")
		granted := w.locking(second)
		defer w.all[2].Faults().Down()()
		began := time.Now()
		unlocked := make(chan error)
		go func() { unlocked <- l.Unlock() }()
		next := <-granted
		assert.Less(t, time.Since(began), time.Second)
		err := <-unlocked
		require.ErrorIs(t, err, dlock.ErrUnlock, "a node stays for a while")
		require.NotErrorIs(t, err, dlock.ErrLost)
		_ = next.Unlock()
	})
}

type hanging struct {
	driver.Connector
	down atomic.Bool
}

func (h *hanging) Connect(ctx context.Context) (driver.Session, error) {
	if h.down.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Connector.Connect(ctx)
}

func TestAWaiterGoesOnToTheNextStoreWhenItsSessionHasEnded(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		holder := w.lock(w.majority("web1"))
		clients := w.clients("web2")
		first := &hanging{Connector: w.all[0]}
		clients[0] = dlock.NewClient(first)
		defer clients[0].Close()
		granted := w.locking(mutex(clients...))
		first.down.Store(true)
		w.expire(0)
		require.NoError(t, holder.Unlock())
		began := time.Now()
		l := <-granted
		assert.Less(t, time.Since(began), 3*time.Second, "not as long as a Connect may last")
		assert.Equal(t, []int64{0, 2, 2}, l.Tokens())
		require.NoError(t, l.Unlock())
		first.down.Store(false)
	})
}

func TestTryLockThatLosesWhatItHasIsUnavailable(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		clients := w.clients("web1")
		granted := &recipes.Trace{Granted: func(context.Context, recipes.GrantedInfo) {
			synctest.Wait() // until the other stores grant their locks
			w.all[0].Faults().ExpireAll()
			w.all[1].Faults().ExpireAll()
			synctest.Wait()
		}}
		clients[2] = dlock.NewClient(w.all[2], dlock.WithTrace(granted))
		defer clients[2].Close()
		_, err := mutex(clients...).TryLock(bg)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, dlock.ErrLost, "the caller never had it")
		require.ErrorContains(t, err, "held in 1 of 3 stores, and 2 are needed: store 1: ")
		require.NotContains(t, err.Error(), "%!")
	})
}

func TestContextsOfAMajority(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		m := w.majority("web1")
		l := w.lock(m)
		var none context.Context
		ctx := l.Context(none)
		require.NoError(t, ctx.Err())
		_, err := m.TryLock(ctx)
		require.ErrorIs(t, err, dlock.ErrLocked, "no re-entry")
		_, err = m.TryLock(l.All()[0].Context(bg))
		require.ErrorIs(t, err, dlock.ErrLocked, "no re-entry")
		require.NoError(t, l.Unlock())
		require.ErrorIs(t, context.Cause(ctx), dlock.ErrNotHeld, "at once")
		require.ErrorIs(t, context.Cause(l.Context(bg)), dlock.ErrNotHeld, "at once")
		for range 50 {
			l = w.lock(m)
			ctx = l.Context(bg)
			require.NoError(t, l.Unlock())
			require.Error(t, ctx.Err(), "at once")
		}
		l = w.lock(m)
		w.expire(0)
		w.expire(1)
		require.ErrorIs(t, context.Cause(l.Context(bg)), dlock.ErrLost, "at once")
		require.ErrorIs(t, l.Unlock(), dlock.ErrLost)
	})
}

type uncomparable struct {
	context.Context
	_ []int
}

func TestContextsOfOneParentAreShared(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		l := w.lock(w.majority("web1"))
		parent, cancel := context.WithCancel(bg)
		ctx := l.Context(parent)
		assert.Same(t, ctx, l.Context(parent))
		assert.NotSame(t, ctx, l.Context(bg))
		cancel()
		require.Error(t, ctx.Err())
		require.NoError(t, l.Context(bg).Err())
		ctx = l.Context(uncomparable{Context: bg})
		require.NoError(t, ctx.Err())
		require.NoError(t, l.Unlock())
		require.ErrorIs(t, context.Cause(ctx), dlock.ErrNotHeld)
	})
}

// Calls after the first must begin with a store that is up.
func TestAFirstStoreThatIsDownDelaysNoCall(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		up := w.all[0].Faults().Down()
		m := w.majority("web1")
		tokens := func(lock func(context.Context) (*majority.Lock, error)) []int64 {
			began := time.Now()
			l, err := lock(bg)
			require.NoError(t, err)
			assert.Zero(t, time.Since(began))
			require.NoError(t, l.Unlock())
			return l.Tokens()
		}
		l := w.lock(m)
		require.NoError(t, l.Unlock())
		for range 20 {
			assert.Zero(t, tokens(m.Lock)[0])
			assert.Zero(t, tokens(m.TryLock)[0])
			time.Sleep(300 * time.Millisecond)
		}
		up()
		for tokens(m.Lock)[0] == 0 {
			time.Sleep(soon)
		}
	})
}

func TestALockOfAMajorityIsPrinted(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		defer w.all[1].Faults().Down()()
		l := w.lock(w.majority("web1"))
		assert.Equal(t, "majority.Lock(q: exclusive, web1-W-0000000000, token 1, held; no lock; q: exclusive, web1-W-0000000000, token 1, held)", l.GoString())
		require.NoError(t, l.Unlock())
	})
}

// Two calls each hold a store that the other needs, until one gives up.
func TestOneOfTwoCallsThatKeepEachOtherOutGivesIn(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		third, err := w.clients("web0")[2].RWMutex("q").Lock(bg)
		require.NoError(t, err)
		var released, firsts atomic.Int32
		var both sync.WaitGroup // done once each call holds a store
		both.Add(2)
		counts := dlock.WithTrace(&recipes.Trace{
			Granted: func(context.Context, recipes.GrantedInfo) {
				if firsts.Add(1) <= 2 {
					both.Done()
					both.Wait()
				}
			},
			Released: func(context.Context, recipes.ReleasedInfo) { released.Add(1) },
		})
		granted := make(chan *majority.Lock)
		for i := range 2 {
			clients := w.clients(fmt.Sprint("web", i+1), counts)
			clients[0], clients[i] = clients[i], clients[0]
			go func() {
				l, err := mutex(clients...).Lock(bg)
				assert.NoError(t, err)
				granted <- l
			}()
		}
		first := <-granted
		synctest.Wait()
		assert.EqualValues(t, 1, released.Load())
		require.NoError(t, first.Unlock())
		require.NoError(t, (<-granted).Unlock())
		require.NoError(t, third.Unlock())
	})
}

type denied struct{ driver.Connector }

func (denied) Connect(context.Context) (driver.Session, error) { return nil, errRefused }

func TestMajorityWorksWhileAStoreRefusesTheClient(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		clients := w.clients("web1")
		clients[0] = dlock.NewClient(denied{})
		defer clients[0].Close()
		m := mutex(clients...)
		held, err := w.clients("web2")[2].RWMutex("q").Lock(bg)
		require.NoError(t, err)
		time.AfterFunc(10*soon, func() { assert.NoError(t, held.Unlock()) })
		require.NoError(t, w.lock(m).Unlock(), "after several rounds")
		for range 20 { // until a Connect's back-off outlasts a call
			l, err := m.TryLock(bg)
			require.NoError(t, err)
			require.NoError(t, l.Unlock())
		}
	})
}

func TestASilentStoreDoesNotKeepAMajorityBeyondItsDeadline(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		holder := w.clients("web1")
		var others []*dlock.Lock
		for _, c := range holder[1:] {
			l, err := c.RWMutex("q").Lock(bg)
			require.NoError(t, err)
			others = append(others, l)
		}
		const limit = 400 * time.Millisecond
		m := w.majority("web2")
		ctx, cancel := context.WithTimeout(bg, limit)
		defer cancel()
		up := make(chan func(), 1)
		time.AfterFunc(limit/2, func() { up <- w.all[0].Faults().Down() }) // the only store whose lock is free
		began := time.Now()
		_, err := m.Lock(ctx)
		require.ErrorIs(t, err, dlock.ErrTimeout)
		assert.Less(t, time.Since(began), limit+100*time.Millisecond)
		(<-up)()
		for _, l := range others {
			require.NoError(t, l.Unlock())
		}
		time.Sleep(soon) // until the first store's node is removed
		for _, s := range w.all {
			assert.Zero(t, s.Stats().Nodes)
		}
	})
}

func TestCloseEndsACallThatRetries(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		for _, s := range w.all {
			defer s.Faults().Down()()
		}
		clients := w.clients("web1")
		time.AfterFunc(time.Hour, func() { _ = clients[1].Close() })
		began := time.Now()
		_, err := mutex(clients...).Lock(bg)
		require.ErrorIs(t, err, dlock.ErrClosed)
		assert.Less(t, time.Since(began), time.Hour+time.Minute)
	})
}

func TestHooksCountAMajorityOnce(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		var seen string
		granted, slow := func() {}, time.Duration(0)
		see := func(recipe, event string) {
			if recipe == "majority" {
				seen += event + " "
			}
			assert.Contains(t, []string{"majority", "member"}, recipe)
		}
		clients := w.clients("web1", dlock.WithTrace(&recipes.Trace{
			Started: func(_ context.Context, i recipes.StartedInfo) { see(i.Recipe, "started") },
			Granted: func(_ context.Context, i recipes.GrantedInfo) {
				if see(i.Recipe, "granted"); i.Recipe == "majority" {
					granted()
				}
			},
			Failed:   func(_ context.Context, i recipes.FailedInfo) { see(i.Recipe, i.Outcome()) },
			Released: func(_ context.Context, i recipes.ReleasedInfo) { see(i.Recipe, "released") },
			Lost: func(_ context.Context, i recipes.LostInfo) {
				if i.Recipe == "majority" {
					time.Sleep(slow)
				}
				see(i.Recipe, i.Reason())
			},
		}))
		m := mutex(clients...)
		saw := func(events string) {
			t.Helper()
			synctest.Wait()
			assert.Equal(t, events+" ", seen)
			seen = ""
		}
		l := w.lock(m)
		w.expire(0)
		require.NoError(t, l.Unlock())
		require.ErrorIs(t, l.Unlock(), dlock.ErrNotHeld)
		saw("started granted released")

		l = w.lock(m)
		for i := range w.all {
			w.expire(i)
		}
		saw("started granted session_ended")
		require.ErrorIs(t, l.Unlock(), dlock.ErrLost)

		l = w.lock(m)
		w.all[0].Faults().RemoveQueue("q")
		w.all[1].Faults().RemoveQueue("q")
		require.ErrorIs(t, l.Unlock(), dlock.ErrLost)
		saw("started granted removed")

		granted = func() {
			w.expire(0)
			w.expire(1)
			assert.Equal(t, "started granted ", seen, "the end is told later")
		}
		require.ErrorIs(t, w.lock(m).Unlock(), dlock.ErrLost)
		saw("started granted session_ended")

		granted = func() { panic("hook") }
		require.Panics(t, func() { _, _ = m.Lock(bg) })
		saw("started granted released")

		held := w.lock(w.majority("web2"))
		_, err := m.TryLock(bg)
		require.ErrorIs(t, err, dlock.ErrLocked)
		require.NoError(t, held.Unlock())
		granted, slow = func() {}, time.Second
		_ = w.lock(m)
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
		assert.Contains(t, seen, "closed", "Close waits for the hook")
		saw("started locked started granted closed")
	})
}
