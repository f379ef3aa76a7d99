package recipes_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func TestCloseGivesEverythingBack(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		held := w.won(a.lock(bg))
		other, err := a.RWMutex("other").RLock(bg)
		require.NoError(w, err)
		waiting := a.lock(bg)
		next := b.lock(bg)
		lost := held.Lost()
		require.NoError(w, a.Close())
		require.ErrorIs(w, w.failed(waiting), recipes.ErrClosed)
		assert.True(w, isClosed(lost))
		assert.True(w, isClosed(other.Lost()))
		require.ErrorIs(w, held.Err(), recipes.ErrLost)
		require.ErrorIs(w, held.Err(), recipes.ErrClosed)
		require.ErrorIs(w, held.Unlock(), recipes.ErrClosed)
		w.unlock(w.won(next))
		assert.Empty(w, w.names())
	})
}

func TestEveryLostClosesBeforeTheNodesGo(t *testing.T) {
	inWorld(t, func(w *world) {
		var lost <-chan struct{}
		var ctx context.Context
		closed := false
		c := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) (f faults.Fault) {
			if r.Op == faults.OpClose {
				closed = true
				assert.True(w, isClosed(lost), "the session is closed before Lost is")
				assert.ErrorIs(w, context.Cause(ctx), recipes.ErrClosed)
			}
			return f
		}), "a")
		held := w.won(c.lock(bg))
		lost, ctx = held.Lost(), held.Context(bg)
		require.NoError(w, c.Close())
		assert.True(w, closed)
	})
}

func TestNilFromADriverIsAnError(t *testing.T) {
	inWorld(t, func(w *world) {
		for says, connector := range map[string]driver.Connector{
			"the connector is nil":           nil,
			"neither a session nor an error": connectorFunc(func(context.Context) (driver.Session, error) { return nil, nil }),
		} {
			c := recipes.NewClient(connector, recipes.WithBackOff(func() recipes.BackOff { return nil }))
			_, err := c.RWMutex("q").Lock(bg)
			assert.ErrorContains(w, err, says)
			require.NoError(w, c.Close())
		}
		c := w.client("a", recipes.WithBackOff(func() recipes.BackOff { return nil }))
		w.store.Faults().LoseRequest(c.session(), faults.OpCreate)
		l, err := c.RWMutex("q").Lock(bg)
		require.NoError(w, err)
		w.unlock(l)
	})
}

func TestCloseInterruptsConnecting(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.store.Faults().Down()()
		c := recipes.NewClient(w.store)
		waiting := going(func() (*recipes.Lock, error) { return c.RWMutex("q").Lock(bg) })
		w.waits(waiting)
		began := time.Now()
		require.NoError(w, c.Close())
		require.ErrorIs(w, w.failed(waiting), recipes.ErrClosed)
		assert.Less(w, time.Since(began), time.Second)
	})
}

func TestConnectedSaysWhyThereIsNoSession(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.connecting(w.store)
		before := w.store.Stats()
		err := c.Connected()
		require.EqualError(w, err, "dlock: not connected: no call has connected yet")
		require.NotErrorIs(w, err, driver.ErrUnavailable)
		assert.Empty(w, w.spent(before))
		require.NoError(w, c.Ping(bg))
		require.NoError(w, c.Connected())
		w.store.Faults().Expire(c.session())
		synctest.Wait()
		require.ErrorIs(w, c.Connected(), driver.ErrSessionEnded)
		up := w.store.Faults().Down()
		require.Error(w, c.Ping(bg))
		require.ErrorIs(w, c.Connected(), driver.ErrUnavailable)
		up()
		require.NoError(w, c.Ping(bg))
		require.NoError(w, c.Connected())
		require.NoError(w, c.Close())
		require.ErrorIs(w, c.Connected(), recipes.ErrClosed)
	})
}
