package zkdriver

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// waiter is a session whose nodes all wait for another session's nodes. Its
// timeout is so long that it sends no heartbeat during a test.
type waiter struct {
	*fixture
	holder      *session
	holderProxy *zktest.Proxy
	multis, all int // numbers of transactions and of frames sent when pass last returned
}

type wait struct {
	queue       string
	ahead, self driver.Place
	watch       driver.Watch
}

const longTimeout = 10 * time.Minute

func newWaiter(t testing.TB) *waiter {
	t.Helper()
	w := &waiter{fixture: newFixture(t, "session_timeout="+longTimeout.String())}
	w.holderProxy = zktest.NewProxy(t, w.server.Addr())
	w.holder = mustConnect(t, "zk://"+w.holderProxy.Addr()+w.chroot+"?session_timeout="+longTimeout.String())
	return w
}

// wait creates a node of the holder's session, and behind it one of the
// waiter's.
func (w *waiter) wait(queue string) wait {
	w.t.Helper()
	ahead, err := create(within(w.t), w.holder, queue, "h-W-", []byte(rand.Text()))
	require.NoError(w.t, err)
	x := wait{queue: queue, ahead: ahead, self: w.mustCreate(queue, "w-W-", rand.Text())}
	x.watch = w.mustWait(x)
	return x
}

func (w *waiter) mustWait(x wait) driver.Watch {
	w.t.Helper()
	watch, err := w.Watch(within(w.t), x.queue, x.self, x.ahead.Node)
	require.NoError(w.t, err)
	return watch
}

// pass advances the clock of the waiter's lease by d, and sends a Sync as a
// heartbeat would.
func (w *waiter) pass(d time.Duration) {
	w.t.Helper()
	leasehook.Skew(w.conn.Lease(), d)
	require.NoError(w.t, w.conn.Sync("/"))
	w.multis, w.all = w.proxy.Frames(zktest.OpMulti), w.proxy.Requests()
}

// sent requires that, since the last pass, the session has sent exactly the
// given number of empty transactions and no other request.
func (w *waiter) sent(proofs int) {
	w.t.Helper()
	require.Equal(w.t, proofs, w.proxy.Frames(zktest.OpMulti)-w.multis, "writes")
	require.Equal(w.t, proofs, w.proxy.Requests()-w.all, "requests")
}

func (w *waiter) release(x wait) {
	w.t.Helper()
	require.NoError(w.t, w.holder.Delete(within(w.t), x.queue, x.ahead, driver.Released))
}

func requireNoEvent(t testing.TB, c <-chan driver.Cause) {
	t.Helper()
	select {
	case cause, open := <-c:
		t.Fatalf("the watch has ended, or sent %v (open: %v), before a write was answered", cause, open)
	default:
	}
}

const (
	shortWait = longTimeout * 3 / 8 * 9 / 10
	longWait  = longTimeout * 3 / 8 * 11 / 10
)

func TestHandOverAfterAShortWaitTakesNoProof(t *testing.T) {
	w := newWaiter(t)
	x := w.wait("q")
	w.pass(shortWait)
	before := w.holderProxy.Requests()
	w.release(x)
	require.Equal(t, driver.Released, causeOf(t, x.watch.C))
	w.sent(0)
	require.Equal(t, 1, w.holderProxy.Requests()-before, "the release is the only request")
}

func TestHandOverAfterALongWaitTakesOneProof(t *testing.T) {
	w := newWaiter(t)
	x := w.wait("q")
	w.pass(longWait)
	held := w.proxy.HoldRequests(zktest.Op(zktest.OpMulti))
	w.release(x)
	closed(t, "the proof is sent", held.Held())
	requireNoEvent(t, x.watch.C)
	held.Release()
	require.Equal(t, driver.Released, causeOf(t, x.watch.C))
	w.sent(1)
	_, err := w.List(within(t), "q")
	require.NoError(t, err)
	require.Equal(t, 1, w.proxy.Frames(zktest.OpMulti)-w.multis, "List needs no second proof")
}

func TestOneProofServesAllWaitersOfASession(t *testing.T) {
	w := newWaiter(t)
	var all []wait
	for i := range 50 {
		all = append(all, w.wait(fmt.Sprint("q", i)))
	}
	w.pass(longWait)
	held := w.proxy.HoldRequests(zktest.Op(zktest.OpMulti))
	for _, x := range all {
		w.release(x)
	}
	eventually(t, "the session has received all releases", func() bool {
		w.own.mu.Lock()
		defer w.own.mu.Unlock()
		return w.own.waiting == 0
	})
	for _, x := range all {
		requireNoEvent(t, x.watch.C)
	}
	held.Release()
	for _, x := range all {
		require.Equal(t, driver.Released, causeOf(t, x.watch.C))
	}
	w.sent(1)
}

func TestAProofThatIsLostIsSentAgain(t *testing.T) {
	w := newWaiter(t)
	x := w.wait("q")
	w.pass(longWait)
	w.proxy.LoseReply(zktest.Op(zktest.OpMulti))
	w.release(x)
	require.Equal(t, driver.Released, causeOf(t, x.watch.C))
	require.GreaterOrEqual(t, w.proxy.Frames(zktest.OpMulti)-w.multis, 2)
}

// A contender that has stopped its watch may act as a holder after listing the
// queue. So List must not return before the proof, an empty transaction, has
// been answered.
func TestListAfterAStoppedWatchWaitsForTheProof(t *testing.T) {
	for name, released := range map[string]bool{"a watch without an event": false, "a watch that waits for the proof": true} {
		t.Run(name, func(t *testing.T) {
			w := newWaiter(t)
			x := w.wait("q")
			w.pass(longWait)
			_, err := w.List(within(t), "q")
			require.NoError(t, err)
			require.Equal(t, w.multis, w.proxy.Frames(zktest.OpMulti), "List needs no proof while all nodes of the session wait")

			held := w.proxy.HoldRequests(zktest.Op(zktest.OpMulti))
			if released {
				w.release(x)
				closed(t, "the proof is sent", held.Held())
			}
			x.watch.Stop()
			lists := make(chan error, 2)
			for range cap(lists) { // the session cannot tell which list is the contender's, so both must wait
				go func() { _, err := w.List(within(t), "q"); lists <- err }()
			}
			closed(t, "the proof is sent", held.Held())
			require.Empty(t, lists, "no list returns before the proof")
			held.Release()
			for range cap(lists) {
				require.NoError(t, <-lists)
			}
			require.Equal(t, 1, w.proxy.Frames(zktest.OpMulti)-w.multis)
		})
	}
}

func TestANodeThatIsHeldSparesTheProof(t *testing.T) {
	w := newWaiter(t)
	w.mustCreate("held", "h-W-", "x")
	x := w.wait("q")
	w.pass(longWait)
	w.release(x)
	require.Equal(t, driver.Released, causeOf(t, x.watch.C))
	w.sent(0)
}

// An event of one watch may make its contender a holder, even if other watches
// of the same node are still open. So a write, which proves that the session
// lives, must be answered before the event is reported.
func TestAnotherOpenWatchDoesNotSpareTheProof(t *testing.T) {
	w := newWaiter(t)
	behind, err := create(within(t), w.holder, "q", "h-W-", []byte("y"))
	require.NoError(t, err)
	x := w.wait("q")
	other, err := w.Watch(within(t), "q", x.self, behind.Node)
	require.NoError(t, err)
	w.pass(longWait)
	held := w.proxy.HoldRequests(zktest.Op(zktest.OpMulti))
	w.release(x)
	closed(t, "the proof is sent", held.Held())
	requireNoEvent(t, x.watch.C)
	held.Release()
	require.Equal(t, driver.Released, causeOf(t, x.watch.C))
	other.Stop()
	require.Equal(t, zkconn.Holding, w.own.duty())
	again := w.mustWait(wait{queue: "q", self: x.self, ahead: behind})
	require.Equal(t, zkconn.Unsure, w.own.duty(), "the node waits again")
	again.Stop()
	require.Equal(t, zkconn.Holding, w.own.duty())
	require.Equal(t, 1, w.proxy.Frames(zktest.OpMulti)-w.multis)
}

func TestDutyFollowsTheWatches(t *testing.T) {
	w := newWaiter(t)
	require.Equal(t, zkconn.Idle, w.own.duty())
	x := w.wait("q")
	require.Equal(t, zkconn.Unsure, w.own.duty())
	second := w.mustWait(x)
	x.watch.Stop()
	x.watch.Stop()
	require.Equal(t, zkconn.Unsure, w.own.duty(), "one of two watches is open")
	second.Stop()
	require.Equal(t, zkconn.Holding, w.own.duty())

	guard, err := w.Watch(within(t), "q", x.self)
	require.NoError(t, err)
	require.Equal(t, zkconn.Holding, w.own.duty(), "a watch of the own node alone")
	guard.Stop()
	nameless := x
	nameless.self.Token = 0
	byName := w.mustWait(nameless)
	require.Equal(t, zkconn.Holding, w.own.duty(), "a watch without a token")
	byName.Stop()
	queue, err := w.WatchQueue(within(t), "q")
	require.NoError(t, err)
	require.Equal(t, zkconn.Holding, w.own.duty(), "a watch of the queue")
	queue.Stop()

	third := w.mustWait(x)
	require.Equal(t, zkconn.Unsure, w.own.duty())
	other := w.mustCreate("other", "h-W-", "x")
	require.Equal(t, zkconn.Holding, w.own.duty(), "another node is held")
	require.NoError(t, w.Delete(within(t), "other", other, driver.Changed))
	require.Equal(t, zkconn.Unsure, w.own.duty())
	_, err = w.Replace(within(t), "q", x.self, "w-R-")
	require.NoError(t, err)
	ended(t, third.C)
	require.Equal(t, zkconn.Holding, w.own.duty(), "after a Replace")
	require.NoError(t, w.Delete(within(t), "q", x.self, driver.Changed))
	require.Equal(t, zkconn.Idle, w.own.duty())

	x = w.wait("q2")
	require.NoError(t, w.raw.Delete(w.chroot+"/q2/"+x.self.Name, -1))
	ended(t, x.watch.C)
	require.Equal(t, zkconn.Idle, w.own.duty(), "the node has gone")
	x.watch.Stop()
	require.Equal(t, zkconn.Idle, w.own.duty())
	require.Zero(t, w.own.waiting)
}

// After a long wait, the driver sends a write (the proof) and reports a release
// only once that was answered. If the session ends first, the watch ends
// without Released.
func TestSessionThatEndsBeforeTheProofSendsNoRelease(t *testing.T) {
	w := newWaiter(t)
	x := w.wait("q")
	w.pass(longWait)
	held := w.proxy.HoldRequests(zktest.Op(zktest.OpMulti))
	w.release(x)
	closed(t, "the proof is sent", held.Held())
	w.conn.Lease().End(driver.ErrSessionEnded)
	ended(t, x.watch.C)
	held.Release()
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.Err(), driver.ErrSessionEnded)

	// If the lease ends before the session has closed its watches, confirmLater
	// ends the watch itself.
	l := &subscriber{c: make(chan driver.Cause, 1), ahead: true, event: releaseEvent, confirming: true}
	w.watches.confirmLater(l)
	ended(t, l.c)
}

func TestWaitersSendNoWritesAtRestExceptTheNextInLine(t *testing.T) {
	t.Parallel()
	lives(t, 3*time.Second, func(timeout time.Duration) error {
		b := newFixture(t, "session_timeout="+timeout.String())
		other := b.another("")
		names := []string{""}
		for range 2 {
			p, err := create(within(t), other, "q", "h-W-", []byte("x"))
			require.NoError(t, err)
			names = append(names, p.Name)
		}
		for ahead, beat := range []int32{1: zktest.OpMulti, 2: zktest.OpSync} {
			if ahead == 0 {
				continue
			}
			s := b.fixtureBeside("session_timeout=" + timeout.String())
			if _, err := waitFor(within(t), s, "q", names[ahead]); err != nil {
				return err
			}
			heartbeats(t, s.session, 2, func() int { return s.proxy.Frames(beat) }) // until the session has looked ahead
			before := s.proxy.Counts()
			heartbeats(t, s.session, 5, func() int { return s.proxy.Frames(beat) })
			after := s.proxy.Counts()
			if s.Err() != nil {
				return s.Err()
			}
			if after[zktest.OpConnect] != before[zktest.OpConnect] { // a new connection sends further requests
				return fmt.Errorf("%w: the session has reconnected", driver.ErrSessionEnded)
			}
			require.Zero(t, after[zktest.OpPing])
			delete(before, beat)
			delete(after, beat)
			if beat == zktest.OpMulti {
				// If an answer was slow, the session sends Syncs between its
				// writes.
				delete(before, zktest.OpSync)
				delete(after, zktest.OpSync)
			}
			require.Equal(t, before, after, "the session has sent nothing but heartbeats")
		}
		return nil
	})
}
