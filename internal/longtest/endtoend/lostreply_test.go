package endtoend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

// faultFunc injects a fault while a client uses the lock. The channel hit is
// closed when the fault has happened.
type faultFunc func(p *zktest.Proxy, r *rand.Rand) (hit <-chan struct{})

var writes = zktest.Op(zktest.OpCreate, zktest.OpDelete, zktest.OpMulti)

func loseRequest(p *zktest.Proxy, _ *rand.Rand) <-chan struct{} { return p.LoseRequest(writes) }
func loseReply(p *zktest.Proxy, _ *rand.Rand) <-chan struct{}   { return p.LoseReply(writes) }

// dropSoon breaks all connections within the next 4 ms.
func dropSoon(p *zktest.Proxy, r *rand.Rand) <-chan struct{} {
	hit := make(chan struct{})
	time.AfterFunc(time.Duration(r.IntN(4000))*time.Microsecond, func() {
		p.DropConnections()
		close(hit)
	})
	return hit
}

// moment decides whether a fault is injected before Lock or before Unlock.
type moment func(r *rand.Rand) (beforeLock bool)

func beforeLock(*rand.Rand) bool     { return true }
func beforeUnlock(*rand.Rand) bool   { return false }
func beforeEither(r *rand.Rand) bool { return r.IntN(2) == 0 }

// lockUnderFaults lets clients take and release one lock while the function
// meet injects faults. There must never be two holders, no call may fail, and
// no node may remain.
func lockUnderFaults(t *testing.T, clients, rounds int, when moment, meet faultFunc) {
	w := newFixture(t)
	ephemerals := w.server.Ephemerals()
	ctx, cancel := context.WithTimeout(t.Context(), 2*bound)
	defer cancel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var (
		inside referee
		met    atomic.Int32
		all    sync.WaitGroup
	)
	for i := range clients {
		c, proxy := w.proxied(fmt.Sprintf("web%d", i))
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		round := func() error {
			var hit <-chan struct{}
			first := when(r)
			if first {
				hit = meet(proxy, r)
			}
			lock, err := c.RWMutex("q").Lock(ctx)
			if err != nil {
				return err
			}
			inside.enter(lock)
			if !first {
				hit = meet(proxy, r)
			}
			inside.leave(lock)
			if err := release(lock); err != nil {
				return err
			}
			select {
			case <-hit:
				met.Add(1)
			case <-time.After(bound):
				return fmt.Errorf("the fault has not happened")
			}
			return nil
		}
		all.Go(func() {
			for range rounds {
				if err := round(); err != nil {
					inside.add("client %d: %w", i, err)
					return
				}
			}
		})
		w.Cleanup(func() {
			require.Len(t, ids(proxy), 1, "the client's sessions")
		})
	}
	all.Wait()
	inside.none(t)
	require.EqualValues(t, clients*rounds, met.Load())
	w.listed("q")
	require.Equal(t, ephemerals, w.server.Ephemerals())
	last, err := w.client("last").RWMutex("q").TryLock(w.soon())
	require.NoError(t, err)
	inside.enter(last)
	w.unlock(last)
	inside.none(t)
}

func TestALostReplyToCreateLeavesNoOrphanAndMakesNoSecondHolder(t *testing.T) {
	lockUnderFaults(t, 4, 50, beforeLock, loseReply)
}

func TestALostReplyToDeleteLeavesNoOrphanAndMakesNoSecondHolder(t *testing.T) {
	lockUnderFaults(t, 4, 50, beforeUnlock, loseReply)
}

func TestRepliesLostAtRandomLeaveNoOrphanAndMakeNoSecondHolder(t *testing.T) {
	lockUnderFaults(t, 4, 50, beforeEither, loseReply)
}

func TestRequestsLostAtRandomLeaveNoOrphanAndMakeNoSecondHolder(t *testing.T) {
	lockUnderFaults(t, 2, 25, beforeEither, loseRequest)
}

func TestAConnectionThatBreaksAtAnyMomentLeavesNoOrphanAndMakesNoSecondHolder(t *testing.T) {
	lockUnderFaults(t, 4, 50, beforeLock, dropSoon)
}

func TestACallThatIsCancelledDuringCreateLeavesNoOrphan(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	w.unlock(w.lock(c).granted())
	for range 10 {
		hold := proxy.HoldReplies(zktest.Op(zktest.OpMulti))
		k := w.lock(c)
		w.closes(hold.Held(), "the Create")
		require.Len(t, w.nodes("q"), 1)
		k.cancel()
		k.failed()
		require.Len(t, w.nodes("q"), 1)
		hold.Release()
		w.listed("q")
	}
}
