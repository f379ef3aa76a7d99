package endtoend_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

const tick = 500 * time.Millisecond // tickTime of the servers of package zktest

func TestWhenTheHoldersClientIsClosedTheNextHoldsPromptly(t *testing.T) {
	w := newFixture(t)
	next := w.client("next")
	var took []time.Duration
	for range 9 {
		c := w.client("holder")
		holder := w.lock(c).granted()
		k := w.lock(next)
		k.waitsBehind(holder.Node())
		began := time.Now()
		require.NoError(t, c.Close())
		lock := k.granted()
		took = append(took, k.at.Sub(began))
		require.ErrorIs(t, holder.Err(), dlock.ErrLost)
		require.ErrorIs(t, holder.Unlock(), dlock.ErrClosed)
		w.unlock(lock)
	}
	requirePrompt(t, 500*time.Millisecond, took)
}

func TestWhenTheHoldersProcessIsKilledTheNextHoldsWithinTheSessionTimeoutAndTwoTicks(t *testing.T) {
	const sessionTimeout, slack = 3 * time.Second, 10 * time.Second
	w := newFixture(t)
	holder := w.child(sessionTimeout)
	node := holder.awaitLine("held")
	w.listed("q", node)
	k := w.lock(w.client("next"))
	k.waitsBehind(node)
	began := time.Now()
	holder.kill()
	lock := k.granted()
	took := k.at.Sub(began)
	t.Logf("%v after the SIGKILL, session timeout %v, tick %v", took, sessionTimeout, tick)
	require.Less(t, took, sessionTimeout+2*tick+slack)
	require.Greater(t, took, sessionTimeout/2, "the store keeps the session for its timeout from the last heartbeat on")
	w.listed("q", lock.Node())
	w.unlock(lock)
}

func TestALockWhoseSessionExpiresIsLost(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	lock := w.lock(c).granted()
	ctx := lock.Context(context.Background())
	k := w.lock(w.client("web2"))
	k.waitsBehind(lock.Node())

	began := time.Now()
	w.expire(proxy)
	w.lost(lock)
	t.Logf("known %v after the expiry", time.Since(began))
	next := k.granted()

	require.ErrorIs(t, lock.Err(), dlock.ErrLost)
	require.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
	_, err := c.RWMutex("q").Lock(ctx)
	require.ErrorIs(t, err, dlock.ErrLost)
	_, err = c.RWMutex("q").RLock(context.WithoutCancel(ctx))
	require.ErrorIs(t, err, dlock.ErrLost)
	require.ErrorIs(t, lock.Downgrade(w.soon()), dlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(), dlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(), dlock.ErrLost)
	require.ErrorIs(t, lock.Err(), dlock.ErrLost)
	require.ErrorIs(t, lock.Err(), dlock.ErrNotHeld)

	w.listed("q", next.Node())
	again := w.lock(c) // with a new session
	again.waitsBehind(next.Node())
	require.Greater(t, next.Token(), lock.Token())
	w.unlock(next)
	w.unlock(again.granted())
}

func TestAWaiterWhoseSessionExpiresQueuesAgainOnANewOne(t *testing.T) {
	for _, mode := range []dlock.Mode{dlock.Exclusive, dlock.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			w := newFixture(t)
			holder := w.lock(w.client("web1")).granted()
			c, proxy := w.proxied("web2")
			k := w.contend(c, "q", mode)
			k.waitsBehind(holder.Node())
			first := k.node()
			w.expire(proxy)
			w.eventually(func() bool { return len(k.nodes()) == 2 }, func() string { return "it does not queue again" })
			k.waitsBehind(holder.Node())
			w.listed("q", holder.Node(), k.node())
			require.NotEqual(t, first, k.node())
			require.Len(t, ids(proxy), 2)
			w.unlock(holder)
			lock := k.granted()
			require.Equal(t, k.node(), lock.Node())
			w.unlock(lock)
		})
	}
}

func TestAWaiterWhoseSessionExpiresRespectsItsTimeout(t *testing.T) {
	w := newFixture(t)
	holder := w.lock(w.client("web1")).granted()
	c, proxy := w.proxied("web2")
	k := w.contend(c, "q", dlock.Exclusive, dlock.WithTimeout(2*time.Second))
	k.waitsBehind(holder.Node())
	w.expire(proxy)
	proxy.Refuse()
	require.ErrorIs(t, k.failed(), dlock.ErrTimeout)
	w.listed("q", holder.Node())
	w.unlock(holder)
}

func TestALockSurvivesALostConnection(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	lock := w.lock(c).granted()
	k := w.lock(w.client("web2"))
	k.waitsBehind(lock.Node())
	before := len(proxy.Sessions())
	proxy.DropConnections()
	w.eventually(func() bool { return len(proxy.Sessions()) > before }, func() string { return "no reconnect" })
	require.NoError(t, c.Ping(w.soon()))
	require.NoError(t, lock.Err())
	require.Len(t, ids(proxy), 1)
	k.waits()
	w.unlock(lock)
	w.unlock(k.granted())
}

func TestWithLockSaysThatTheLockWasLostMeanwhile(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	err := c.RWMutex("q").WithLock(w.soon(), func(ctx context.Context, _ *dlock.Lock) error {
		w.expire(proxy)
		<-ctx.Done()
		return nil
	})
	require.ErrorIs(t, err, dlock.ErrLost)
	w.listed("q")
}
