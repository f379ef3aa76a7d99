package endtoend_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/recipes"
)

func (w *fixture) outage(p *zktest.Proxy, lost *dlock.Lock) (began time.Time) {
	w.Helper()
	began = time.Now()
	p.Cut()
	w.lost(lost)
	p.Heal()
	return began
}

// cutOffParams make the lease end long before the session, so that a test has
// time to check what happens in between.
const cutOffParams = "session_timeout=20s&lease_margin=9s"

func TestAfterAnOutageTheSameClientLocksAgainRightAfterUnlock(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	proxy := zktest.NewProxy(t, w.server.Addr())
	c := w.open(w.dsn(proxy.Addr(), cutOffParams), "web1")
	lost := w.lock(c).granted()
	first := w.lock(w.client("web2"))
	first.waitsBehind(lost.Node())
	began := w.outage(proxy, lost)

	again := w.lock(c)
	w.eventually(func() bool { return len(again.nodes()) == 1 }, func() string { return "no new session" })
	first.waits()
	require.Contains(t, w.nodes("q"), lost.Node(), "the holder has not unlocked, and may be at work")
	require.Zero(t, proxy.Frames(zktest.OpClose))

	require.ErrorIs(t, lost.Unlock(), dlock.ErrLost)
	w.unlock(first.granted())
	w.unlock(again.granted())
	t.Logf("%v after the outage began; the server keeps sessions for 20s", time.Since(began))
	require.NotZero(t, proxy.Frames(zktest.OpClose), "of the lost session; a slow answer makes the client repeat it")
	require.Len(t, ids(proxy), 2)
}

func TestAfterAnOutageAWaiterDoesNotWaitForItsOwnOldNode(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	proxy := zktest.NewProxy(t, w.server.Addr())
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) }) // Close calls SessionEnded once more
	c := w.open(w.dsn(proxy.Addr(), cutOffParams), "web1",
		dlock.WithTrace(&recipes.Trace{SessionEnded: func(context.Context, recipes.SessionEndedInfo) { end() }}))
	holder := w.lock(w.client("web2")).granted()
	k := w.lock(c)
	k.waitsBehind(holder.Node())
	proxy.Cut()
	w.closes(ended, "the session")
	proxy.Heal()
	w.eventually(func() bool { return len(k.nodes()) == 2 }, func() string { return "it does not queue again" })
	w.listed("q", holder.Node(), k.node())
	require.NotZero(t, proxy.Frames(zktest.OpClose), "of the lost session; a slow answer makes the client repeat it")
	w.unlock(holder)
	w.unlock(k.granted())
}

func TestCloseAfterAnOutageLeavesNoNode(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	proxy := zktest.NewProxy(t, w.server.Addr())
	c := w.open(w.dsn(proxy.Addr(), cutOffParams), "web1")
	lost := w.lock(c).granted()
	proxy.Cut()
	w.lost(lost)
	proxy.Refuse()
	proxy.DropConnections()
	proxy.Heal()
	require.NoError(t, c.Close())
	w.listed("q")
	require.NotZero(t, proxy.Frames(zktest.OpClose))
}

func TestCloseInAnOutageReportsHowLongTheNodesOfALostSessionMayStay(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	proxy := zktest.NewProxy(t, w.server.Addr())
	c := w.open(w.dsn(proxy.Addr(), cutOffParams), "web1")
	lost := w.lock(c).granted()
	proxy.Cut()
	w.lost(lost)
	require.ErrorIs(t, lost.Unlock(), dlock.ErrLost)
	err := c.Close()
	requireWords(t, err, "dlock: close: ", "nodes stay", "at most 20s after a server has heard of it last")
	require.ErrorIs(t, err, dlock.ErrUnavailable)
}
