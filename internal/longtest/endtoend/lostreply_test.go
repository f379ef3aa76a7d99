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

// fault injects a fault while a client uses the lock. The channel hit is closed
// when the fault has happened.
type fault func(p *zktest.Proxy, r *rand.Rand) (hit <-chan struct{})

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

// Clients take and release one lock while requests and replies are lost. There
// must never be two holders, no call may fail, and no node may remain.
func TestBreaksLeaveNoOrphanAndMakeNoSecondHolder(t *testing.T) {
	for name, c := range map[string]struct {
		clients, rounds int
		beforeLock      float64 // how often the fault meets Lock, and not Unlock
		meet            fault
	}{
		"lost replies":                    {4, 50, .5, loseReply},
		"lost requests":                   {2, 25, .5, loseRequest},
		"connections break at any moment": {4, 50, 1, dropSoon},
	} {
		t.Run(name, func(t *testing.T) { lockUnderFaults(t, c.clients, c.rounds, c.beforeLock, c.meet) })
	}
}

func lockUnderFaults(t *testing.T, clients, rounds int, beforeLock float64, meet fault) {
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
		c, proxy := w.proxied(fmt.Sprintf("web%d", i), "")
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		round := func() error {
			var hit <-chan struct{}
			first := r.Float64() < beforeLock
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
			ids := make(map[int64]bool)
			for _, s := range proxy.Sessions() {
				ids[s.ID] = s.ID != 0 || ids[s.ID]
			}
			delete(ids, 0)
			require.Len(t, ids, 1, "the client's sessions")
		})
	}
	all.Wait()
	inside.none(t)
	require.EqualValues(t, clients*rounds, met.Load())
	w.listed("q")
	require.Equal(t, ephemerals, w.server.Ephemerals())
	last, err := w.client("last", "").RWMutex("q").TryLock(w.soon())
	require.NoError(t, err)
	require.NoError(t, inside.pass(last))
	inside.none(t)
}
