package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// stores are independent stores in virtual time.
type stores struct {
	*testing.T
	all      []*memdriver.Store
	requests atomic.Int64 // all but those of sessions
}

func inStores(t *testing.T, n int, f func(w *stores)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &stores{T: t}
		for range n {
			w.all = append(w.all, memdriver.New())
		}
		t.Cleanup(func() {
			synctest.Wait()
			for i, s := range w.all {
				require.Zero(t, s.Stats().Nodes, "nodes left in store %d", i)
				require.Zero(t, s.Stats().Sessions, "sessions left in store %d", i)
			}
		})
		f(w)
	})
}

// clients returns a client of each store.
func (w *stores) clients(host string) (clients []*recipes.Client) {
	for _, s := range w.all {
		counting := faults.New(s, func(_ context.Context, r faults.Request) faults.Fault {
			if r.Stage == faults.StageRequest && r.Op != faults.OpConnect && r.Op != faults.OpClose {
				w.requests.Add(1)
			}
			return faults.Fault{}
		})
		c := recipes.NewClient(counting, recipes.WithHostname(host))
		w.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return clients
}

func (w *stores) majority(host string, opts ...recipes.Option) *recipes.Majority {
	return recipes.NewMajority("q", w.clients(host), opts...)
}

// expire ends the sessions of all clients of a store.
func (w *stores) expire(store int) {
	w.all[store].Faults().ExpireAll()
	synctest.Wait()
}

func TestMajorityTakesAllStoresThatCanBeReached(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		m := w.majority("web1")
		l, err := m.Lock(bg)
		require.NoError(t, err)
		require.NoError(t, l.Err())
		assert.Equal(t, []int64{1, 1, 1}, l.Tokens())
		require.NoError(t, l.Unlock())
		require.ErrorIs(t, l.Unlock(), recipes.ErrNotHeld)
		require.ErrorIs(t, l.Err(), recipes.ErrNotHeld)
		assert.EqualValues(t, 6+1, w.requests.Load(), "a Create and a Delete in each store, and a Ping of the first")
		l, err = m.Lock(bg)
		require.NoError(t, err)
		require.NoError(t, l.Unlock())
		assert.EqualValues(t, 7+6, w.requests.Load(), "a session is known to be reachable")
	})
}

func TestMajorityWorksWithTwoOfFiveStoresAway(t *testing.T) {
	inStores(t, 5, func(w *stores) {
		defer w.all[0].Faults().Down()()
		defer w.all[3].Faults().Down()()
		m := w.majority("web1")
		l, err := m.Lock(bg)
		require.NoError(t, err)
		assert.Equal(t, []int64{0, 1, 1, 0, 1}, l.Tokens())
		_, err = w.majority("web2").TryLock(bg)
		require.ErrorIs(t, err, recipes.ErrLocked)
		require.NoError(t, l.Unlock())
	})
}

func TestMajorityWithThreeOfFiveStoresAwayIsUnavailable(t *testing.T) {
	inStores(t, 5, func(w *stores) {
		for i := range 3 {
			defer w.all[i].Faults().Down()()
		}
		m := w.majority("web1")
		_, err := m.TryLock(bg)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, recipes.ErrTimeout)
		require.NotErrorIs(t, err, recipes.ErrLocked)
		began := time.Now()
		_, err = m.Lock(bg)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.Greater(t, time.Since(began), 30*time.Second, "as long as the back-off allows")
		limited, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		_, err = m.Lock(limited)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, err, recipes.ErrTimeout)
		assert.ErrorContains(t, err, "3 are needed")
	})
}

func TestMajoritySurvivesTheLossOfAMinority(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		m := w.majority("web1")
		l, err := m.Lock(bg)
		require.NoError(t, err)
		ctx := l.Context(bg)
		w.expire(0)
		require.NoError(t, l.Err())
		require.NoError(t, ctx.Err())
		require.False(t, isClosed(l.Lost()))
		_, err = w.majority("web2").TryLock(bg)
		require.ErrorIs(t, err, recipes.ErrLocked)
		require.NoError(t, l.Unlock(), "it was held to the end")
		require.Error(t, ctx.Err())
		require.False(t, isClosed(l.Lost()))
	})
}

func TestMajorityIsLostWithTheMajority(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		l, err := w.majority("web1").Lock(bg)
		require.NoError(t, err)
		ctx := l.Context(bg)
		w.expire(2)
		w.expire(1)
		require.ErrorIs(t, l.Err(), recipes.ErrLost)
		require.True(t, isClosed(l.Lost()))
		require.ErrorIs(t, context.Cause(ctx), recipes.ErrLost)
		require.ErrorIs(t, l.Unlock(), recipes.ErrLost)
	})
}

func TestMajorityGivesTheStoreThatOthersWaitForBackLast(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		var order []string
		var mu sync.Mutex
		clients := w.clients("web1")
		trace := func(c *recipes.Client) *recipes.Trace {
			return &recipes.Trace{Released: func(context.Context, recipes.ReleasedInfo) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(slices.Index(clients, c)))
			}}
		}
		for i, s := range w.all {
			clients[i] = recipes.NewClient(s)
			w.Cleanup(func() { _ = clients[i].Close() })
		}
		locked := make([]*recipes.Client, 3)
		for i, s := range w.all {
			locked[i] = recipes.NewClient(s, recipes.WithTrace(trace(clients[i])))
			w.Cleanup(func() { _ = locked[i].Close() })
		}
		l, err := recipes.NewMajority("q", locked).Lock(bg)
		require.NoError(t, err)
		require.NoError(t, l.Unlock())
		require.Len(t, order, 3)
		assert.Equal(t, "0", order[2])
	})
}

func TestMajorityRefusesWrongClients(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		c := w.clients("web1")
		closed := recipes.NewClient(w.all[2])
		require.NoError(t, closed.Close())
		twin := w.clients("web2")[0]
		for name, test := range map[string]struct {
			clients []*recipes.Client
			text    string
			is      error
		}{
			"none":               {nil, "at least 3, not 0", nil},
			"an even number":     {append(w.clients("web3"), c[0]), "odd number of clients, at least 3, not 4", nil},
			"one client twice":   {[]*recipes.Client{c[0], c[1], c[0]}, "given twice", nil},
			"one store twice":    {[]*recipes.Client{c[0], c[1], twin}, "two clients use one store", nil},
			"a closed client":    {[]*recipes.Client{c[0], c[1], closed}, "closed", recipes.ErrClosed},
			"a client never had": {[]*recipes.Client{c[0], nil, c[2]}, "closed", recipes.ErrClosed},
		} {
			m := recipes.NewMajority("q", test.clients)
			for call, lock := range map[string]func(context.Context) (*recipes.Locks, error){"Lock": m.Lock, "TryLock": m.TryLock} {
				l, err := lock(bg)
				require.Nil(t, l, "%s, %s", name, call)
				require.ErrorContains(t, err, test.text, "%s, %s", name, call)
				if test.is != nil {
					require.ErrorIs(t, err, test.is, "%s, %s", name, call)
				}
			}
		}
		var zero recipes.Majority
		_, err := zero.Lock(bg)
		require.ErrorIs(t, err, recipes.ErrClosed)
		_, err = (*recipes.Majority)(nil).TryLock(bg)
		require.ErrorIs(t, err, recipes.ErrClosed)
		_, err = recipes.NewMajority("a//b", c).Lock(bg)
		require.ErrorIs(t, err, recipes.ErrBadName)
	})
}

func TestMajorityEndsWithItsContext(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		holder, err := w.majority("web1").Lock(bg)
		require.NoError(t, err)
		_, err = w.majority("web2", recipes.WithTimeout(3*time.Second)).Lock(bg)
		require.ErrorIs(t, err, recipes.ErrTimeout)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "held by web1-W-")
		ctx, cancel := context.WithCancelCause(bg)
		reason := errors.New("reason")
		time.AfterFunc(time.Second, func() { cancel(reason) })
		_, err = w.majority("web3").Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
		require.NoError(t, holder.Unlock())
	})
}

// guarded is what the lock protects: a counter of those inside, and the greatest
// token of each store.
type guarded struct {
	sync.Mutex
	inside int
	marks  []int64
	grants int
}

// enter fails if a token is below its mark, as the resource of a Majority does.
func (g *guarded) enter(t *testing.T, l *recipes.Locks) {
	g.Lock()
	defer g.Unlock()
	tokens := l.Tokens()
	for i, token := range tokens {
		assert.False(t, token != 0 && token < g.marks[i], "the holder of %v is refused: the marks are %v", tokens, g.marks)
		g.marks[i] = max(g.marks[i], token)
	}
	g.inside++
	assert.Equal(t, 1, g.inside, "holders at the same time")
	g.grants++
}

func (g *guarded) leave() {
	g.Lock()
	defer g.Unlock()
	g.inside--
}

// Each worker takes and gives back the lock while stores come and go. Half of
// the workers know the stores in another order.
func TestMajorityHasOneHolderWhileStoresComeAndGo(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		inStores(t, 3+2*(seed%2), func(w *stores) {
			random := rand.New(rand.NewPCG(uint64(seed), 0))
			g := guarded{marks: make([]int64, len(w.all))}
			const workers, turns = 6, 10
			var all sync.WaitGroup
			for i := range workers {
				clients := w.clients(fmt.Sprint("web", i))
				all.Go(func() {
					for range turns {
						l, err := recipes.NewMajority("q", clients).Lock(bg)
						if !assert.NoError(t, err) {
							return
						}
						g.enter(t, l)
						time.Sleep(10 * time.Millisecond)
						lost := l.Err()
						g.leave()
						if lost == nil {
							_ = l.Unlock() // may come too late by now
						} else {
							assert.ErrorIs(t, l.Unlock(), recipes.ErrLost)
						}
					}
				})
			}
			done := make(chan struct{})
			go func() { all.Wait(); close(done) }()
			for over := false; !over; {
				store := w.all[random.IntN(len(w.all))]
				up := store.Faults().Down()
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				up()
				select {
				case <-done:
					over = true
				case <-time.After(time.Duration(random.IntN(3000)) * time.Millisecond):
				}
			}
			assert.Equal(t, workers*turns, g.grants)
		})
	}
}

func TestMajoritiesInAnotherOrderDoNotKeepEachOtherOut(t *testing.T) {
	inStores(t, 3, func(w *stores) {
		var all sync.WaitGroup
		g := guarded{marks: make([]int64, 3)}
		for i := range 6 {
			clients := w.clients(fmt.Sprint("web", i))
			order := rand.Perm(3)
			all.Go(func() {
				for range 20 {
					m := recipes.NewMajority("q", []*recipes.Client{clients[order[0]], clients[order[1]], clients[order[2]]})
					l, err := m.Lock(bg)
					if !assert.NoError(t, err) {
						return
					}
					time.Sleep(10 * time.Millisecond)
					g.Lock()
					g.grants++
					g.Unlock()
					assert.NoError(t, l.Unlock())
				}
			})
		}
		all.Wait()
		assert.Equal(t, 120, g.grants)
	})
}
