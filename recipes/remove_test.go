package recipes_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

func (w *world) queued(c *client) []recipes.Contender {
	w.Helper()
	queue, err := c.RWMutex("q").Queue(bg)
	require.NoError(w, err)
	return queue
}

func TestRemoveTakesTheLockFromItsHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, operator := w.client("a"), w.client("b"), w.client("operator")
		held := w.won(a.lock(bg))
		waiting := b.lock(bg)
		w.waits(waiting)

		queue := w.queued(operator)
		require.NoError(w, operator.RWMutex("q").Remove(bg, queue[0]))
		next := w.won(waiting)
		<-held.Lost()
		require.ErrorIs(w, held.Err(), recipes.ErrLost)
		require.ErrorIs(w, held.Unlock(), recipes.ErrLost)

		err := operator.RWMutex("q").Remove(bg, queue[0])
		require.ErrorIs(w, err, recipes.ErrGone)
		require.ErrorContains(w, err, "dlock: q: remove a-W-0000000000: ")
		require.NoError(w, next.Err())
		w.unlock(next)
	})
}

func TestAWaiterThatIsRemovedQueuesAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		held := w.won(a.lock(bg))
		first := b.lock(bg)
		w.waits(first)
		second := c.lock(bg)
		w.waits(second)

		require.NoError(w, a.RWMutex("q").Remove(bg, w.queued(a)[1]))
		w.waits(first)
		w.unlock(held)
		held = w.won(second)
		w.waits(first)
		w.unlock(held)
		w.unlock(w.won(first))
	})
}

func TestRemoveSparesALaterContenderOfTheName(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		old := w.won(c.lock(bg))
		seen := w.queued(c)[0]
		w.store.Faults().RemoveQueue("q")
		<-old.Lost()
		require.Error(w, old.Unlock())
		held := w.won(c.lock(bg))
		require.Equal(w, seen.Node, held.Node())

		for _, other := range []recipes.Contender{seen, {Node: held.Node()}, {Token: held.Token()}, {}} {
			require.ErrorIs(w, c.RWMutex("q").Remove(bg, other), recipes.ErrGone)
		}
		require.NoError(w, held.Err())
		w.unlock(held)
	})
}

func TestTheQueueTellsWhatIsLeftOfASession(t *testing.T) {
	inWorld(t, func(w *world) {
		c, other := w.client("a"), w.client("b")
		held := w.won(c.lock(bg))
		w.store.Faults().CutOff(c.session())
		began := w.queued(other)[0].SessionLeft
		assert.InDelta(w, 10*time.Second, began, float64(2*time.Second))
		time.Sleep(4 * time.Second)
		left := w.queued(other)[0]
		assert.Equal(w, began-4*time.Second, left.SessionLeft)
		assert.Contains(w, left.String(), " ("+left.SessionLeft.String()+" left), ")
		w.store.Faults().Expire(c.session())
		require.Error(w, held.Unlock())
	})
}

func TestWalkFindsLocksWithContenders(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		for _, name := range []string{"stock/42", "stock", "stocks", "order"} {
			lock, err := c.RWMutex(name).Lock(bg)
			require.NoError(w, err)
			if name != "order" {
				defer lock.Unlock()
			} else {
				w.unlock(lock)
			}
		}
		for prefix, want := range map[string][]string{"": {"stock", "stock/42", "stocks"}, "stock": {"stock", "stock/42"}, "order": nil} {
			names, err := c.Walk(bg, prefix)
			require.NoError(w, err)
			assert.Equal(w, want, names, prefix)
		}
		_, err := c.Walk(bg, "a//b")
		require.ErrorIs(w, err, recipes.ErrBadName)
		require.ErrorContains(w, err, "dlock: walk: ")
	})
}

func TestTheReplyToARemoveIsLost(t *testing.T) {
	inWorld(t, func(w *world) {
		c, operator := w.client("a"), w.client("operator")
		held := w.won(c.lock(bg))
		seen := w.queued(operator)[0]
		w.lose(operator.session(), faults.OpRemove, true)
		require.ErrorIs(w, operator.RWMutex("q").Remove(bg, seen), driver.ErrUnavailable)
		<-held.Lost()
		require.ErrorIs(w, operator.RWMutex("q").Remove(bg, seen), recipes.ErrGone)
		require.Error(w, held.Unlock())
	})
}

// replacing puts another node under the name of a removed one before the store
// is asked for it, and changes what Read returns.
type replacing struct {
	driver.Session
	driver.Inspector
	put  func()
	read func(*driver.NodeInfo) error
}

func (r *replacing) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	r.put()
	info, err := r.Inspector.Read(ctx, queue, name)
	return info, cmp.Or(err, r.read(&info))
}

func (r *replacing) List(ctx context.Context, queue string) ([]driver.Node, error) {
	r.put()
	return r.Session.List(ctx, queue)
}

func TestAHolderDoesNotTakeAnotherNodeOfItsNameForItsOwn(t *testing.T) {
	for how, read := range map[string]func(own int64, info *driver.NodeInfo) error{
		"a foreign node with a forged token":                                func(own int64, info *driver.NodeInfo) error { info.Token = own; return nil },
		"a node with another token, in a store that knows no foreign nodes": func(_ int64, info *driver.NodeInfo) error { info.Foreign = false; return nil },
		"a node of another epoch, in a store that cannot read nodes":        func(int64, *driver.NodeInfo) error { return errors.ErrUnsupported },
	} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				r := &replacing{put: func() {}}
				c := w.clientOf(wrapped(w.store, func(s driver.Session) driver.Session {
					r.Session, r.Inspector = s, driver.Inspect(s)
					return r
				}), "a")
				held := w.won(c.lock(bg))
				time.Sleep(soon) // until the holder watches its node
				r.put = func() { _ = w.store.Faults().PutNode("q", held.Node(), nil) }
				r.read = func(info *driver.NodeInfo) error { return read(held.Token(), info) }
				w.store.Faults().RemoveQueue("q")
				synctest.Wait()
				assert.Equal(w, []string{held.Node()}, w.names())
				require.ErrorIs(w, held.Err(), recipes.ErrLost)
				require.ErrorIs(w, held.Unlock(), recipes.ErrLost)
				w.store.Faults().RemoveQueue("q")
			})
		})
	}
}
