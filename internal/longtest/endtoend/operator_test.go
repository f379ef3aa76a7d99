package endtoend_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/zkdriver"
)

func TestAHolderLearnsWithinASecondThatItsNodeWasRemoved(t *testing.T) {
	for _, mode := range []dlock.Mode{dlock.Exclusive, dlock.Shared} {
		for _, when := range []string{"at once", "later"} {
			t.Run(mode.String()+" "+when, func(t *testing.T) {
				w := newFixture(t)
				c := w.client("web1")
				watches := w.server.Watches()
				const tries = 7
				var locks []*dlock.Lock
				for i := range tries {
					locks = append(locks, w.contend(c, queueOf(i), mode).granted())
				}
				if when == "later" {
					w.watched(watches, tries) // one per holder
				}
				requirePrompt(t, time.Second, w.removeAndAwait(locks))
				for i, lock := range locks {
					w.lost(lock)
					require.ErrorIs(t, lock.Unlock(), dlock.ErrLost)
					w.unlock(w.contend(c, queueOf(i), mode).granted()) // the session is still usable
				}
			})
		}
	}
}

func queueOf(i int) string { return fmt.Sprintf("q%d", i) }

// removeAndAwait removes the locks' nodes and returns how long each holder took
// to notice.
func (w *fixture) removeAndAwait(locks []*dlock.Lock) []time.Duration {
	w.Helper()
	took := make([]time.Duration, len(locks))
	var all sync.WaitGroup
	for i, lock := range locks {
		began := time.Now()
		w.remove(queueOf(i), lock.Node())
		all.Go(func() {
			select {
			case <-lock.Lost():
			case <-time.After(bound):
			}
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	return took
}

func TestUnlockNoticesThatTheNodeWasRemovedAMomentAgo(t *testing.T) {
	w := newFixture(t)
	lock := w.lock(w.client("web1")).granted()
	w.remove("q", lock.Node())
	require.ErrorIs(t, lock.Unlock(), dlock.ErrLost)
}

func TestADowngradedHolderLearnsThatItsNodeWasRemoved(t *testing.T) {
	w := newFixture(t)
	watches := w.server.Watches()
	lock := w.lock(w.client("web1")).granted()
	w.watched(watches, 1) // set before the downgrade renames the node
	require.NoError(t, lock.Downgrade(w.soon()))
	require.NoError(t, lock.Err())
	w.remove("q", lock.Node())
	w.lost(lock)
}

func TestAWaiterWhoseNodeWasRemovedIsNotGrantedAndQueuesAgain(t *testing.T) {
	w := newFixture(t)
	c := w.clients(3)
	holder := w.lock(c[0]).granted()
	middle := w.lock(c[1])
	middle.waitsBehind(holder.Node())
	last := w.lock(c[2])
	first := middle.node()
	last.waitsBehind(first)

	w.remove("q", first)
	w.eventually(func() bool { return len(middle.nodes()) == 2 }, func() string { return "the waiter does not queue again" })
	middle.waitsBehind(last.node())
	last.waitsBehind(holder.Node())
	w.listed("q", holder.Node(), last.node(), middle.node())
	w.unlock(holder)
	w.unlock(last.granted())
	lock := middle.granted()
	require.NotEqual(t, first, lock.Node())
	w.unlock(lock)
	w.listed("q")
}

func TestAWaiterWhoseNodeIsRemovedJustBeforeItsGrantIsNotGranted(t *testing.T) {
	w := newFixture(t)
	c := w.clients(3)
	for range 20 {
		holder := w.lock(c[0]).granted()
		next := w.lock(c[1])
		next.waitsBehind(holder.Node())
		first := next.node()
		last := w.lock(c[2])
		last.waitsBehind(first)
		_, err := w.raw.Multi(
			&zk.DeleteRequest{Path: w.path("q") + "/" + first, Version: -1},
			&zk.DeleteRequest{Path: w.path("q") + "/" + holder.Node(), Version: -1})
		require.NoError(t, err)
		lock := last.granted()
		next.waitsBehind(lock.Node())
		require.NotEqual(t, first, next.node())
		require.ErrorIs(t, holder.Unlock(), dlock.ErrLost)
		w.unlock(lock)
		w.unlock(next.granted())
	}
}

func TestWhenTheQueueIsRemovedEveryWaiterQueuesAgain(t *testing.T) {
	w := newFixture(t)
	c := w.clients(6)
	const queue = "stock/42"
	holder := w.contend(c[0], queue, dlock.Exclusive).granted()
	var waiting []*contender
	before := holder.Node()
	for i := range 4 {
		k := w.contend(c[1+i], queue, dlock.Exclusive)
		k.waitsBehind(before)
		before = k.node()
		waiting = append(waiting, k)
	}
	w.removeQueue(queue)
	w.raw.Delete(w.root+"/stock", -1) // fails if the queue exists again
	w.lost(holder)

	var inside referee
	for len(waiting) > 0 { // grants follow the order of the new nodes
		var lock *dlock.Lock
		w.eventually(func() bool {
			i := slices.IndexFunc(waiting, func(k *contender) bool {
				select {
				case <-k.done:
					return true
				default:
					return false
				}
			})
			if i < 0 {
				return false
			}
			lock = waiting[i].granted()
			waiting = slices.Delete(waiting, i, i+1)
			return true
		}, func() string { return "no waiter is granted the lock" })
		require.Greater(t, lock.Token(), holder.Token())
		inside.enter(lock)
		for _, other := range waiting {
			other.waits()
		}
		inside.leave(lock)
		w.unlock(lock)
	}
	inside.none(t)
	require.ErrorIs(t, holder.Unlock(), dlock.ErrLost)
	for _, client := range c {
		w.unlock(w.contend(client, queue, dlock.Exclusive).granted())
	}
	require.Empty(t, w.nodes(queue))
}

func TestAFreeQueueThatWasRemovedIsMadeAgain(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	first := w.contend(c[0], "stock/42", dlock.Exclusive).granted()
	w.unlock(first)
	w.removeQueue("stock/42")
	require.NoError(t, w.raw.Delete(w.root+"/stock", -1))
	second := w.contend(c[0], "stock/42", dlock.Exclusive).granted()
	require.Equal(t, first.Node(), second.Node())
	require.Greater(t, second.Token(), first.Token())
	k := w.contend(c[1], "stock/42", dlock.Exclusive)
	k.waitsBehind(second.Node())
	w.unlock(second)
	w.unlock(k.granted())
}

// takenOver returns a lost lock and its successor. Their nodes have the same
// name, because an operator has removed the queue in between and both clients
// have the same host name.
func takenOver(t *testing.T) (w *fixture, old, present *dlock.Lock) {
	w = newFixture(t)
	old = w.lock(w.client("web1")).granted()
	w.removeQueue("q")
	present = w.lock(w.client("web1")).granted()
	require.Equal(t, old.Node(), present.Node())
	return w, old, present
}

func TestUnlockOfALostLockLeavesANodeOfTheSameName(t *testing.T) {
	w, old, present := takenOver(t)
	w.lost(old)
	w.listed("q", present.Node())
	require.ErrorIs(t, old.Unlock(), dlock.ErrLost)
	require.ErrorIs(t, old.Unlock(), dlock.ErrLost)
	w.listed("q", present.Node())
	require.NoError(t, present.Err())
	w.unlock(present)
}

func TestCloseOfTheOldHoldersClientLeavesANodeOfTheSameName(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1")
	old := w.lock(c).granted()
	w.removeQueue("q")
	present := w.lock(w.client("web1")).granted()
	require.NoError(t, c.Close())
	require.ErrorIs(t, old.Err(), dlock.ErrLost)
	w.listed("q", present.Node())
	require.NoError(t, present.Err())
	w.unlock(present)
}

// The reply to an Unlock is lost. Before the client reconnects, another client
// holds the lock with a node of the same name. The repeated Delete must not
// remove that node.
func TestTheRepeatOfALostUnlockLeavesANodeOfTheSameName(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	old := w.lock(c).granted()
	hit := proxy.LoseReply(zktest.Op(zktest.OpDelete, zktest.OpMulti))
	proxy.OnRequest(func(op int32) {
		if op == zktest.OpDelete || op == zktest.OpMulti {
			proxy.Refuse() // stay disconnected once the Delete is in flight
		}
	})
	unlocked := make(chan error, 1)
	go func() { unlocked <- old.Unlock() }()
	w.closes(hit, "the Delete")
	proxy.OnRequest(nil)
	w.listed("q")
	w.removeQueue("q")
	present := w.lock(w.client("web1")).granted()
	require.Equal(t, old.Node(), present.Node())
	proxy.Heal()
	if err := <-unlocked; err != nil { // on a slow machine Unlock gives up after 2 s
		require.ErrorIs(t, err, driver.ErrUnavailable)
	}
	require.NoError(t, c.Ping(w.soon()))
	w.unlock(w.contend(c, "other", dlock.Exclusive).granted()) // by now, the client has repeated the Delete in the background
	w.listed("q", present.Node())
	require.NoError(t, present.Err())
	w.unlock(present)
}

// Package recipes relies on this: a Delete can be repeated at any time without
// the risk of removing another node of the same name.
func TestARepeatedDeleteLeavesANodeOfTheSameName(t *testing.T) {
	w := newFixture(t)
	connector, err := zkdriver.Driver{}.OpenConnector(w.dsn(w.server.Addr(), ""))
	require.NoError(t, err)
	s, err := connector.Connect(w.soon())
	require.NoError(t, err)
	defer s.Close()
	old, err := s.Create(w.soon(), "q", driver.NodeSpec{Prefix: "web1-W-", Data: []byte("1")})
	require.NoError(t, err)
	require.NoError(t, s.Delete(w.soon(), "q", old.Place, driver.Changed))
	w.removeQueue("q")
	present := w.lock(w.client("web1")).granted()
	require.Equal(t, old.Name, present.Node())
	for range 3 {
		require.ErrorIs(t, s.Delete(w.soon(), "q", old.Place, driver.Changed), driver.ErrGone)
	}
	w.listed("q", present.Node())
	require.NoError(t, present.Err())
	w.unlock(present)
}

// A transaction replaces the queue by one whose nodes have the same names but
// are owned by another client. The waiter must not take one of them for its
// own, but queue again.
func TestAWaiterIsNotGrantedOnANodeOfTheSameName(t *testing.T) {
	for _, mode := range []dlock.Mode{dlock.Exclusive, dlock.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			w := newFixture(t)
			c := w.clients(2)
			watches := w.server.Watches()
			holder := w.lock(c[0]).granted()
			k := w.contend(c[1], "q", mode)
			k.waitsBehind(holder.Node())
			// one for the holder, two for the waiter
			w.watched(watches, 3)
			first := k.node()
			prefix := first[:len(first)-10]
			path := w.path("q")
			_, err := w.raw.Multi(
				&zk.DeleteRequest{Path: path + "/" + holder.Node(), Version: -1},
				&zk.DeleteRequest{Path: path + "/" + first, Version: -1},
				&zk.DeleteRequest{Path: path, Version: -1},
				&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)},
				&zk.CreateRequest{Path: path + "/web0-W-", Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeralSequential},
				&zk.CreateRequest{Path: path + "/" + prefix, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeralSequential})
			require.NoError(t, err)
			require.Equal(t, []string{holder.Node(), first}, w.nodes("q")[:2])

			w.eventually(func() bool { return len(k.nodes()) == 2 }, func() string { return "the waiter does not queue again" })
			blocker := holder.Node() // the predecessor if the waiter is a reader
			if mode == dlock.Exclusive {
				blocker = first
			}
			k.waitsBehind(blocker)
			w.listed("q", holder.Node(), first, k.node())
			w.lost(holder)

			w.remove("q", holder.Node())
			if mode == dlock.Exclusive {
				k.waitsBehind(first)
				w.remove("q", first)
			}
			lock := k.granted()
			require.NotEqual(t, first, lock.Node())
			require.Contains(t, w.nodes("q"), lock.Node())
			w.unlock(lock)
		})
	}
}

func TestAnOperatorCannotMakeTwoHolders(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	holder := w.lock(c[0]).granted()
	ctx := holder.Context(context.Background())
	k := w.lock(c[1])
	k.waitsBehind(holder.Node())
	w.remove("q", holder.Node())
	lock := k.granted()
	w.closes(ctx.Done(), "the end of the lock's context")
	require.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
	require.NoError(t, lock.Err())
	require.Greater(t, lock.Token(), holder.Token())
	w.unlock(lock)
}

// Just before a holder watches its node, the queue is recreated with another
// client's node of that name. The holder must notice the loss, and its Unlock
// must not delete that node.
func TestAHolderSeesANodeOfTheSameNameWhileItSetsItsWatch(t *testing.T) {
	for name, hold := range map[string]func(*zktest.Proxy, func(int32) bool) *testenv.Hold{
		"before the request": (*zktest.Proxy).HoldRequests,
		"before the reply":   (*zktest.Proxy).HoldReplies,
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			c, proxy := w.proxied("web1")
			w.unlock(w.lock(c).granted()) // the client now knows the queue, so its next read of data sets the watch
			guard := hold(proxy, zktest.Op(zktest.OpGetData))
			old := w.lock(c).granted()
			w.closes(guard.Held(), "the guard's request")
			w.removeQueue("q")
			other := w.client("web1")
			w.unlock(w.lock(other).granted())
			present := w.lock(other).granted()
			require.Equal(t, old.Node(), present.Node())
			guard.Release()
			w.lost(old)
			require.ErrorIs(t, old.Unlock(), dlock.ErrLost)
			w.listed("q", present.Node())
			require.NoError(t, present.Err())
			w.unlock(present)
		})
	}
}

// Just before a waiter lists the queue, the queue is recreated with other
// clients' nodes of the same names. The waiter must not be granted the lock
// with a node that is not its own.
func TestAWaiterSeesNodesOfTheSameNamesWhileItSetsItsWatch(t *testing.T) {
	w := newFixture(t)
	holder := w.lock(w.client("web0")).granted()
	c, proxy := w.proxied("web1")
	list := proxy.HoldReplies(zktest.Op(zktest.OpGetChildren2))
	k := w.lock(c)
	w.closes(list.Held(), "the List")
	first := k.node()
	w.removeQueue("q")
	blocker := w.lock(w.client("web0")).granted()
	other := w.lock(w.client("web1"))
	other.waitsBehind(blocker.Node())
	require.Equal(t, holder.Node(), blocker.Node())
	require.Equal(t, first, other.node())
	list.Release()
	k.waits()
	w.unlock(blocker)
	lock := other.granted()
	k.waitsBehind(lock.Node())
	require.NotEqual(t, first, k.node())
	w.unlock(lock)
	w.unlock(k.granted())
}
