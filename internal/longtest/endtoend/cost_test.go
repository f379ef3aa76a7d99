package endtoend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// swift is less than the 300 ms after which a holder watches its own node.
const swift = 200 * time.Millisecond

// swiftly repeats f until a call takes less than swift, and then calls check.
func (w *fixture) swiftly(f, check func()) {
	w.Helper()
	w.eventually(func() bool {
		began := time.Now()
		f()
		return time.Since(began) < swift
	}, func() string { return "the machine is too slow to count requests" })
	check()
}

// cost is how many requests of each kind a session has sent.
type cost map[string]int

var kinds = map[string]int32{"multi": zktest.OpMulti, "delete": zktest.OpDelete, "data": zktest.OpGetData, "list": zktest.OpGetChildren2}

func spent(p *zktest.Proxy, f func()) cost {
	all, before := p.Requests(), make(cost)
	for kind, op := range kinds {
		before[kind] = p.Frames(op)
	}
	f()
	all = p.Requests() - all
	counts := make(cost)
	for kind, op := range kinds {
		if n := p.Frames(op) - before[kind]; n > 0 {
			counts[kind] = n
			all -= n
		}
	}
	if all != 0 {
		counts["of other kinds"] = all
	}
	return counts
}

func TestLocksThatDoNotWaitAreFewRequests(t *testing.T) {
	type locks interface{ Unlock() error }
	units := func(c *dlock.Client) (locks, error) { return c.Semaphore("q", 3).Acquire(context.Background(), 1) }
	rlock := func(c *dlock.Client) (locks, error) { return c.RWMutex("q").RLock(context.Background()) }
	for name, x := range map[string]struct {
		beside, take func(c *dlock.Client) (locks, error)
		taken, given cost
	}{
		"a free lock": {nil, func(c *dlock.Client) (locks, error) { return c.RWMutex("q").Lock(context.Background()) },
			cost{"multi": 1}, cost{"multi": 1}},
		"a free lock below another": {nil, func(c *dlock.Client) (locks, error) { return c.RWMutex("stock/42").Lock(context.Background()) },
			cost{"multi": 1}, cost{"multi": 1}},
		"a free lock for a reader": {nil, rlock, cost{"multi": 1}, cost{"delete": 1}},
		"a reader among readers":   {rlock, rlock, cost{"multi": 1, "list": 1}, cost{"delete": 1}},
		"a try of a free lock": {nil, func(c *dlock.Client) (locks, error) { return c.RWMutex("q").TryLock(context.Background()) },
			cost{"multi": 1, "list": 1}, cost{"multi": 1}},
		"locks together": {nil, func(c *dlock.Client) (locks, error) {
			return dlock.LockAll(context.Background(), c.RWMutex("c"), c.RWMutex("b").RLocker(), c.RWMutex("a"))
		}, cost{"multi": 3}, cost{"multi": 2, "delete": 1}},
		"free units":           {nil, units, cost{"multi": 1}, cost{"delete": 1}},
		"units beside holders": {units, units, cost{"multi": 1, "list": 1}, cost{"delete": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			c, proxy := w.proxied("web1", "")
			if x.beside != nil {
				held, err := x.beside(w.client("web2", ""))
				require.NoError(t, err)
				defer held.Unlock()
			}
			var taken, given cost
			turn := func() {
				var l locks
				taken = spent(proxy, func() {
					var err error
					l, err = x.take(c)
					require.NoError(t, err)
				})
				given = spent(proxy, func() { require.NoError(t, l.Unlock()) })
			}
			turn() // not counted, because it creates the queue
			for range 10 {
				w.swiftly(turn, func() { require.Equal(t, []cost{x.taken, x.given}, []cost{taken, given}) })
			}
		})
	}
}

// The five are a create, a list, two watches and a delete.
func TestALockThatHasToWaitIsFiveRequests(t *testing.T) {
	for _, x := range []struct {
		handover   string
		mode       dlock.Mode
		grant, end cost
	}{
		{"release", dlock.Exclusive, cost{}, cost{"multi": 1}},
		{"release", dlock.Shared, cost{}, cost{"delete": 1}},
		{"list", dlock.Shared, cost{"list": 1}, cost{"delete": 1}},
	} {
		t.Run(x.mode.String()+" with handover="+x.handover, func(t *testing.T) {
			w := newFixture(t)
			present := w.client("web1", "")
			c, proxy := w.proxied("web2", "&handover="+x.handover)
			first := w.lock(present).granted()
			waiting := w.lock(c)
			waiting.waitsBehind(first.Node())
			if x.handover == "release" {
				w.eventually(func() bool { return proxy.Frames(zktest.OpGetACL) == 1 }, func() string { return "the ACL is not read" })
			}
			w.unlock(first)
			w.unlock(waiting.granted()) // the client then knows the queue's ACL
			var queueing, entering, leaving cost
			var began time.Time
			w.eventually(func() bool {
				held := w.lock(present).granted()
				var next *contender
				watches := w.server.Watches()
				queueing = spent(proxy, func() {
					next = w.contend(c, "q", x.mode)
					next.waitsBehind(held.Node())
					// The call sets its two watches concurrently, so wait
					// for both.
					w.eventually(func() bool { return w.server.Watches() >= watches+2 }, func() string { return "the server does not hold both watches of the waiter" })
				})
				began = time.Now()
				entering = spent(proxy, func() { w.unlock(held); next.granted() })
				leaving = spent(proxy, func() { w.unlock(next.lock) })
				return time.Since(began) < swift
			}, func() string { return "the machine is too slow to count requests" })
			require.Equal(t, []cost{{"multi": 1, "data": 2, "list": 1}, x.grant, x.end}, []cost{queueing, entering, leaving})
		})
	}
}

// go-zookeeper itself makes 46 allocations for the two requests.
func TestAFreeLockAllocatesLittle(t *testing.T) {
	w := newFixture(t)
	m := w.client("web1", "").RWMutex("q")
	n := testing.AllocsPerRun(200, func() {
		lock, err := m.Lock(context.Background())
		require.NoError(t, err)
		require.NoError(t, lock.Unlock())
	})
	t.Logf("%v allocations", n)
	require.LessOrEqual(t, n, 115.0) // 108 when this test was written
}

func TestTryLockOfALockedLockWritesNothing(t *testing.T) {
	w := newFixture(t)
	w.lock(w.client("web1", "")).granted()
	c, proxy := w.proxied("web2", "")
	require.Equal(t, cost{"list": 20}, spent(proxy, func() {
		for range 10 {
			_, err := c.RWMutex("q").TryLock(w.soon())
			require.ErrorIs(t, err, dlock.ErrLocked)
			_, err = c.RWMutex("q").TryRLock(w.soon())
			require.ErrorIs(t, err, dlock.ErrLocked)
		}
	}))
}

// Wanted sends two list requests: one sets a watch on the queue.
func TestEachChangeOfTheQueueCostsWantedTwoRequests(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1", "")
	var made cost
	w.swiftly(func() {
		lock, err := c.RWMutex("q").RLock(w.soon())
		require.NoError(t, err)
		before := proxy.Frames(zktest.OpGetChildren2)
		var beside *dlock.Lock
		var writer *contender
		made = spent(proxy, func() {
			untilListed := func(n int) {
				w.eventually(func() bool { return proxy.Frames(zktest.OpGetChildren2) >= before+n }, func() string { return "the queue is not listed" })
				_, err := c.RWMutex("other").Queue(w.soon()) // answered after the list
				require.NoError(t, err)
			}
			wanted := lock.Wanted()
			untilListed(2)
			beside, err = w.client("web2", "").RWMutex("q").RLock(w.soon())
			require.NoError(t, err)
			untilListed(5)
			writer = w.lock(w.client("web3", ""))
			select {
			case <-wanted:
			case <-time.After(bound):
				require.FailNow(t, "nobody wants the lock")
			}
		})
		w.unlock(lock, beside)
		w.unlock(writer.granted())
	}, func() { require.Equal(t, cost{"list": 3*2 + 2}, made, "two lists are of other") })
}

// maxPerHandOver allows for holders that start to watch their own nodes on a
// busy machine.
const maxPerHandOver = 1.3

func TestAReleaseWakesOneWriterHoweverManyWait(t *testing.T) {
	const n = 50
	for name, sessions := range map[string]int{"sessions": n + 1, "of one session": 1} {
		t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
			w := newFixture(t)
			clients := w.clients(sessions, "")
			watches := w.server.Watches()
			held := w.lock(clients[0]).granted()
			before := held.Node()
			var queued []*contender
			for i := range n {
				k := w.lock(clients[(1+i)%sessions])
				k.waitsBehind(before)
				queued = append(queued, k)
				before, _ = k.last()
			}
			if sessions > 1 {
				w.watched(watches, 2*n+1) // two for each waiter, one for the holder
			} else {
				w.watched(watches, n+1) // one for each node, shared within the session
			}
			requests := w.server.Requests(t)
			for _, k := range queued {
				w.unlock(held)
				held = k.granted()
			}
			spent := float64(w.server.Requests(t)-requests) / n
			t.Logf("%.2f requests for each hand-over", spent)
			require.LessOrEqual(t, spent, maxPerHandOver)
			w.unlock(held)
			w.listed("q")
			w.watched(watches, 0)
		})
	}
}

// One waiter is granted the units, and the next one watches every holder.
func TestAReleaseOfUnitsWakesTwoWaitersHoweverManyWait(t *testing.T) {
	const n, waiters, counted = 8, 30, 20
	w := newFixture(t)
	first := w.client("web0", "")
	var holders []*dlock.Lock
	for range n {
		l, err := first.Semaphore("q", n).Acquire(w.soon(), 1)
		require.NoError(t, err)
		holders = append(holders, l)
	}
	proxy := zktest.NewProxy(w, w.server.Addr())
	granted := make(chan *dlock.Lock, waiters)
	watches := 0 // requests that watch nodes
	watching := func(more int) {
		watches += more
		w.eventually(func() bool { return proxy.Frames(zktest.OpGetData) >= watches }, func() string {
			return fmt.Sprintf("%d watches, and not %d", proxy.Frames(zktest.OpGetData), watches)
		})
	}
	for i := range waiters {
		s := w.open(w.dsn(proxy.Addr(), ""), fmt.Sprint("web", 1+i)).Semaphore("q", n)
		go func() {
			l, err := s.Acquire(w.soon(), 1)
			if err == nil {
				granted <- l
			}
		}()
		ahead := 1
		if i == 0 {
			ahead = n
		}
		watching(2 + ahead)
	}
	made := spent(proxy, func() {
		for range counted {
			w.unlock(holders[0])
			holders[0] = <-granted
			watching(n + 1) // its own node, and those of the holders
		}
	})
	require.Equal(t, [2]int{counted, 2 * counted}, [2]int{made["multi"], made["list"]})
	// On a slow machine, a holder may watch its own node again after 300 ms.
	require.GreaterOrEqual(t, made["data"], (n+1)*counted)
	require.LessOrEqual(t, made["data"], (n+2)*counted)
	for range waiters - counted {
		w.unlock(holders[0])
		holders = append(holders[1:], <-granted)
	}
	w.unlock(holders...)
	w.listed("q")
}
