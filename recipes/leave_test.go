package recipes_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// cutOff disconnects a client, and waits until its session is lost.
func (w *world) cutOff(c *client) (heal func()) {
	s := c.session()
	heal = w.store.Faults().CutOff(s)
	<-s.Done()
	synctest.Wait()
	return heal
}

func TestALostSessionEndsInTheStoreWithTheLastUnlock(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		a, b := w.client("a"), w.client("b")
		l := w.won(a.lock(bg))
		inner := w.won(a.rlock(l.Context(bg)))
		other := w.granted(a.RWMutex("other").RLock(bg))
		next := b.lock(bg)
		w.cutOff(a)()
		again := a.lock(bg)

		// The store must keep the session until the last Unlock, because
		// holders may still work.
		for _, held := range []*recipes.Lock{l, other, inner} {
			time.Sleep(time.Minute)
			w.waits(next)
			w.waits(again)
			require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
		}
		w.unlock(w.won(next))
		w.unlock(w.won(again))
	})
}

func TestALostSessionWithoutLocksEndsInTheStoreAtOnce(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		a, b := w.client("a"), w.client("b")
		held := w.won(b.lock(bg))
		waiting := a.lock(bg)
		heal := w.cutOff(a)
		time.Sleep(soon)
		w.waits(waiting)
		assert.Equal(w, []string{"b-W-0000000000", "a-W-0000000001", "a-W-0000000002"}, w.names())
		heal()
		time.Sleep(5 * time.Second) // until the next attempt to end the session
		assert.Equal(w, []string{"b-W-0000000000", "a-W-0000000002"}, w.names())
		w.unlock(held)
		w.unlock(w.won(waiting))
	})
}

func TestALockLostInAHookThatPanicsDoesNotKeepTheLostSession(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		a, b := w.client("a"), w.client("b")
		granted := func(context.Context, recipes.GrantedInfo) {
			w.cutOff(a)()
			panic("hook")
		}
		assert.PanicsWithValue(w, "hook", func() {
			_, _ = a.RWMutex("q", recipes.WithTrace(&recipes.Trace{Granted: granted})).Lock(bg)
		})
		w.unlock(w.won(b.lock(bg)))
	})
}

func TestANewSessionIsAReasonToEndTheLostOneNow(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		c := w.client("a", recipes.WithBackOff(func() recipes.BackOff { return daily{} }))
		l := w.won(c.lock(bg))
		heal := w.cutOff(c)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		// The first attempt fails within this minute; the next is due a day
		// later.
		time.Sleep(time.Minute)
		heal()
		w.unlock(w.won(c.lock(bg)))
	})
}

type daily struct{}

func (daily) NextBackOff() time.Duration { return 24 * time.Hour }
func (daily) Reset()                     {}

func TestCloseEndsALostSessionInTheStore(t *testing.T) {
	for name, unlocked := range map[string]bool{"unlocked": true, "not unlocked": false} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, patient, func(w *world) {
				c := w.client("a", recipes.WithBackOff(func() recipes.BackOff { return daily{} }))
				l := w.won(c.lock(bg))
				heal := w.cutOff(c)
				if unlocked {
					require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
				}
				time.Sleep(time.Minute)
				heal()
				require.Equal(w, []string{l.Node()}, w.names())
				require.NoError(w, c.Close())
				assert.Empty(w, w.names())
			})
		})
	}
}

func TestCloseSaysThatNodesOfALostSessionMayStay(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		heal := w.cutOff(c)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		require.NoError(w, c.Ping(bg), "the client has a new session")
		time.Sleep(time.Minute)
		began := time.Now()
		err := c.Close()
		assert.LessOrEqual(w, time.Since(began), 5*time.Second)
		require.ErrorIs(w, err, driver.ErrUnavailable)
		require.ErrorContains(w, err, "nodes stay until")
		require.ErrorContains(w, err, "1h0m0s")
		assert.NotContains(w, err.Error(), "\n")
		require.Equal(w, err, c.Close())
		require.Equal(w, []string{l.Node()}, w.names())
		heal()
		time.Sleep(time.Hour)
	})
}
