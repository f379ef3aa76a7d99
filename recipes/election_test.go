package recipes_test

import (
	"context"
	"errors"
	"runtime"
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

// running calls e.Run on a new goroutine. The function result requires that it
// has returned.
func (w *world) running(ctx context.Context, e *recipes.Election, lead func(context.Context, *recipes.Lock) error) (result func() error) {
	c := make(chan error, 1)
	go func() { c <- e.Run(ctx, lead) }()
	synctest.Wait()
	return func() error {
		w.Helper()
		synctest.Wait()
		select {
		case err := <-c:
			return err
		default:
			require.FailNow(w, "Run has not returned")
			return nil
		}
	}
}

// watched records what an observer saw: each leader's data, "-" for none, "!"
// for errors.
type watched struct {
	mu    sync.Mutex
	seen  []string
	last  error
	ended bool
}

func (w *world) observing(ctx context.Context, e *recipes.Election) *watched {
	o := new(watched)
	go func() {
		for c, err := range e.Observe(ctx) {
			o.add(c, err)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended = true
	}()
	synctest.Wait()
	return o
}

func (o *watched) add(c recipes.Contender, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil:
		o.seen, o.last = append(o.seen, "!"), err
	case c.Node == "":
		o.seen = append(o.seen, "-")
	default:
		o.seen = append(o.seen, c.Record.Data)
	}
}

func (o *watched) saw() (seen []string) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, o.seen = o.seen, nil
	return seen
}

func (o *watched) over() (bool, error) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended, o.last
}

func (c *client) campaign(ctx context.Context, value string) <-chan result {
	return going(func() (*recipes.Lock, error) {
		return c.Election("q", recipes.WithData([]byte(value))).Campaign(ctx)
	})
}

func TestTheLeadersValueIsSeenByAll(t *testing.T) {
	inWorld(t, func(w *world) {
		var recipe string
		a, b := w.client("a", recipes.WithTrace(&recipes.Trace{Granted: func(_ context.Context, i recipes.GrantedInfo) { recipe = i.Recipe }})), w.client("b")
		e := b.Election("q")
		_, err := e.Leader(bg)
		require.ErrorIs(w, err, recipes.ErrNoLeader)
		assert.EqualError(w, err, "dlock: q: no leader")
		term := w.won(a.campaign(bg, "10.0.0.7:80"))
		assert.Equal(w, "election", recipe)
		waiting := b.campaign(bg, "10.0.0.8:80")
		before := w.store.Stats()
		leader, err := e.Leader(bg)
		require.NoError(w, err)
		assert.Equal(w, map[faults.Op]int64{faults.OpList: 1, faults.OpRead: 1}, w.spent(before))
		assert.Equal(w, "10.0.0.7:80", leader.Record.Data)
		assert.Equal(w, term.Token(), leader.Token)
		assert.Equal(w, recipes.Exclusive, leader.Mode)
		assert.True(w, leader.Holds)
		queue, err := a.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		assert.Equal(w, []string{"10.0.0.7:80", "10.0.0.8:80"}, []string{queue[0].Record.Data, queue[1].Record.Data})
		w.unlock(term)
		next := w.won(waiting)
		assert.Greater(w, next.Token(), term.Token())
		w.unlock(next)
	})
}

func TestObserversSeeEachLeaderAndJoinsWakeNone(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		ctx, cancel := context.WithCancel(bg)
		o := w.observing(ctx, c.Election("q"))
		assert.Equal(w, []string{"-"}, o.saw())
		first := w.won(a.campaign(bg, "A"))
		assert.Equal(w, []string{"A"}, o.saw())

		before := w.store.Stats()
		second := b.campaign(bg, "B")
		given, stop := context.WithCancel(bg)
		third := a.campaign(given, "C")
		stop()
		require.ErrorIs(w, w.failed(third), context.Canceled)
		made := w.spent(before)
		assert.Equal(w, map[faults.Op]int64{faults.OpCreate: 2, faults.OpDelete: 1}, made, "the observer makes no request")
		assert.Empty(w, o.saw())

		before = w.store.Stats()
		w.unlock(first)
		term := w.won(second)
		assert.Equal(w, []string{"B"}, o.saw())
		assert.Equal(w, map[faults.Op]int64{faults.OpDelete: 1, faults.OpList: 1, faults.OpWatch: 1, faults.OpRead: 1}, w.spent(before))
		w.store.Faults().Expire(b.session())
		assert.Equal(w, []string{"-"}, o.saw())
		require.ErrorIs(w, term.Unlock(), recipes.ErrLost)
		cancel()
		ended, err := o.over()
		assert.True(w, ended)
		require.ErrorIs(w, err, context.Canceled)
	})
}

func TestAnObserverThatComesLateSeesTheLeaderGo(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		first := w.won(a.campaign(bg, "A"))
		second := b.campaign(bg, "B")
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		o := w.observing(ctx, a.Election("q"))
		assert.Equal(w, []string{"A"}, o.saw())
		w.unlock(first)
		assert.Equal(w, []string{"B"}, o.saw())
		w.unlock(w.won(second))
	})
}

// An RWMutex with the election's name shares its queue, and may have readers.
func TestReadersAreNoLeaders(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client("a"), w.client("b"), w.client("c")
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		reader := w.won(a.rlock(bg))
		other := w.won(b.rlock(bg))
		o := w.observing(ctx, c.Election("q"))
		assert.Equal(w, []string{"-"}, o.saw())
		waiting := b.campaign(bg, "B")
		_, err := c.Election("q").Leader(bg)
		require.ErrorIs(w, err, recipes.ErrNoLeader)
		w.unlock(reader)
		assert.Empty(w, o.saw(), "there is still a reader")
		w.unlock(other)
		term := w.won(waiting)
		assert.Equal(w, []string{"B"}, o.saw())
		require.NoError(w, term.Downgrade(bg))
		assert.Equal(w, []string{"-"}, o.saw(), "a leader that becomes a reader no longer leads")
		_, err = c.Election("q").Leader(bg)
		require.ErrorIs(w, err, recipes.ErrNoLeader)
		w.unlock(term)
	})
}

func TestObserveTellsOfAnOutageOnceAndGoesOn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		term := w.won(a.campaign(bg, "A"))
		o := w.observing(ctx, b.Election("q"))
		assert.Equal(w, []string{"A"}, o.saw())
		up := w.store.Faults().Down()
		time.Sleep(10 * time.Minute)
		assert.Equal(w, []string{"!"}, o.saw())
		_, err := o.over()
		require.ErrorIs(w, err, driver.ErrUnavailable)
		up()
		time.Sleep(time.Minute)
		assert.Equal(w, []string{"-"}, o.saw())
		require.ErrorIs(w, term.Unlock(), recipes.ErrLost)
		term = w.won(a.campaign(bg, "A"))
		assert.Equal(w, []string{"A"}, o.saw())
		w.store.Faults().Expire(b.session())
		time.Sleep(soon)
		assert.Empty(w, o.saw(), "the observer has another session, and the leader is the same")
		require.NoError(w, b.Close())
		ended, err := o.over()
		assert.True(w, ended)
		require.ErrorIs(w, err, recipes.ErrClosed)
		w.unlock(term)
	})
}

func TestALoopOverObserveMayEndAtAnyTime(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		for range c.Election("q").Observe(bg) {
			break
		}
		term := w.won(c.campaign(bg, "A"))
		for leader, err := range c.Election("q").Observe(bg) {
			require.NoError(w, err)
			assert.False(w, leader.HeldSince.IsZero())
			assert.NotZero(w, w.store.Stats().Watches)
			break
		}
		w.unlock(term)
		assert.Zero(w, w.store.Stats().Watches)
	})
}

func TestAnObserverMissesNoChangeBetweenItsRequests(t *testing.T) {
	for name, op := range map[string]faults.Op{"first leader": faults.OpWatchQueue, "next leader": faults.OpWatch} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.client("a")
				var change func()
				c := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
					if f := change; r.Op == op && r.Stage == faults.StageRequest && f != nil {
						change = nil
						f()
					}
					return faults.Fault{}
				}), "c")
				var term *recipes.Lock
				campaign := func(value string) {
					var err error
					term, err = a.Election("q", recipes.WithData([]byte(value))).Campaign(bg)
					assert.NoError(w, err)
				}
				if op == faults.OpWatch {
					campaign("A")
				}
				change = func() {
					if term != nil {
						w.unlock(term)
					}
					campaign("B")
				}
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				assert.Equal(w, []string{"B"}, w.observing(ctx, c.Election("q")).saw())
				w.unlock(term)
			})
		})
	}
}

// A new session may reach a lagging server, which still shows a former leader.
func TestAnObserverIgnoresLeadersFromBeforeTheLatest(t *testing.T) {
	inWorld(t, func(w *world) {
		old := &world{w.T, memdriver.New()} // a lagging server, whose tokens are smaller
		a, b := w.client("a"), old.client("b")
		for range 3 {
			w.unlock(w.won(a.campaign(bg, "before")))
		}
		term := w.won(a.campaign(bg, "A"))
		stale := old.won(b.campaign(bg, "B"))
		to := &switching{to: w.store}
		c := w.clientOf(to, "c")
		ctx, cancel := context.WithCancel(bg)
		o := w.observing(ctx, c.Election("q"))
		assert.Equal(w, []string{"A"}, o.saw())
		w.unlock(term)
		assert.Len(w, o.saw(), 1, "nobody leads")
		for _, s := range []*memdriver.Store{old.store, w.store, old.store} {
			before := to.to.(*memdriver.Store)
			to.to = s
			before.Faults().Expire(c.session())
			time.Sleep(20 * time.Second)
			assert.Empty(w, o.saw())
		}
		time.Sleep(20 * time.Second)
		assert.Equal(w, []string{"B"}, o.saw(), "the tokens stay smaller: the store was set up anew")
		cancel()
		w.unlock(stale)
	})
}

type switching struct{ to driver.Connector }

func (s *switching) Connect(ctx context.Context) (driver.Session, error) { return s.to.Connect(ctx) }

func TestAnObserverWhoseWatchesEndEarlyIsPaced(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.client("a")
		c := w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			if r.Op == faults.OpWatch && r.Stage == faults.StageRequest {
				return faults.Fault{EndWatchAfter: time.Nanosecond}
			}
			return faults.Fault{}
		}), "c")
		term := w.won(a.campaign(bg, "A"))
		ctx, cancel := context.WithCancel(bg)
		before := w.store.Stats()
		o := w.observing(ctx, c.Election("q"))
		time.Sleep(10 * time.Second)
		assert.Equal(w, []string{"A"}, o.saw())
		assert.Less(w, w.spent(before)[faults.OpList], int64(100))
		w.unlock(term)
		time.Sleep(soon)
		assert.Equal(w, []string{"-"}, o.saw())
		cancel()
	})
}

func TestRunGivesATermUpOnlyWhenLeadHasReturned(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		ctx, cancel := context.WithCancel(bg)
		stopped := make(chan struct{})
		run := w.running(ctx, a.Election("q"), func(ctx context.Context, term *recipes.Lock) error {
			<-ctx.Done()
			<-stopped
			assert.NoError(w, term.Err(), "the term goes on until lead returns")
			return nil
		})
		next := b.campaign(bg, "B")
		cancel()
		time.Sleep(time.Hour)
		w.waits(next)
		close(stopped)
		w.unlock(w.won(next))
		require.NoError(w, run(), "the result of lead")
	})
}

func TestRunCampaignsAgainAfterALoss(t *testing.T) {
	for how, lose := range losses {
		if how == "its client is closed" {
			continue
		}
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.client("a")
				ctx, cancel := context.WithCancel(bg)
				var tokens []int64
				run := w.running(ctx, a.Election("q"), func(ctx context.Context, term *recipes.Lock) error {
					assert.Equal(w, term, recipes.FromContext(ctx))
					tokens = append(tokens, term.Token())
					<-ctx.Done()
					return context.Cause(ctx)
				})
				for range 3 {
					time.Sleep(soon)
					lose(w, a, "q")
				}
				time.Sleep(soon)
				cancel()
				require.ErrorIs(w, run(), context.Canceled)
				require.Len(w, tokens, 4)
				assert.IsIncreasing(w, tokens)
			})
		})
	}
}

// Neither WithTimeout nor a back-off that gives up may end Run.
func TestRunOutlastsOutagesAndWaitsWithoutALimit(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a", recipes.WithTimeout(time.Hour)), w.client("b")
		ctx, cancel := context.WithCancel(bg)
		var leads atomic.Int64
		run := w.running(ctx, a.Election("q"), func(ctx context.Context, _ *recipes.Lock) error {
			leads.Add(1)
			<-ctx.Done()
			return nil
		})
		require.EqualValues(w, 1, leads.Load())
		up := w.store.Faults().Down()
		time.Sleep(2 * time.Hour)
		up()
		time.Sleep(10 * time.Second)
		require.EqualValues(w, 2, leads.Load())
		waiting := b.campaign(bg, "B")
		w.store.Faults().Expire(a.session())
		term := w.won(waiting)
		time.Sleep(soon)
		before := w.store.Stats()
		time.Sleep(5 * time.Hour)
		assert.Zero(w, w.spent(before)[faults.OpCreate], "it keeps its place")
		w.unlock(term)
		synctest.Wait()
		require.EqualValues(w, 3, leads.Load())
		cancel()
		require.NoError(w, run())
	})
}

func TestRunReturnsTheResultOfLead(t *testing.T) {
	inWorld(t, func(w *world) {
		c, mine := w.client("a"), errors.New("mine")
		for _, want := range []error{nil, mine, recipes.ErrLost} { // ErrLost of another lock
			err := c.Election("q").Run(bg, func(context.Context, *recipes.Lock) error { return want })
			assert.Equal(w, want, err)
			assert.Empty(w, w.names())
		}
		var heal func()
		err := c.Election("q").Run(bg, func(context.Context, *recipes.Lock) error {
			heal = w.store.Faults().CutOff(c.session())
			return mine
		})
		require.ErrorIs(w, err, mine)
		require.ErrorIs(w, err, recipes.ErrUnlock)
		heal()
		time.Sleep(soon)
		assert.Empty(w, w.names())
	})
}

func TestALeadThatPanicsResigns(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		assert.PanicsWithValue(w, "mine", func() {
			_ = c.Election("q").Run(bg, func(context.Context, *recipes.Lock) error { panic("mine") })
		})
		assert.Empty(w, w.names())
		go func() {
			_ = c.Election("q").Run(bg, func(context.Context, *recipes.Lock) error { runtime.Goexit(); return nil })
		}()
		synctest.Wait()
		assert.Empty(w, w.names())
	})
}

func TestRunDoesNotReenterATerm(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		term := w.won(c.campaign(bg, "A"))
		leads := false
		run := w.running(term.Context(bg), c.Election("q"), func(context.Context, *recipes.Lock) error {
			leads = true
			return nil
		})
		w.unlock(term)
		require.ErrorIs(w, run(), recipes.ErrNotHeld, "its context ended with the term")
		assert.False(w, leads)
	})
}
