package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

var errJob = errors.New("the job failed")

func nothing(context.Context, *recipes.Lock) error { return nil }

type job struct {
	*world
	running atomic.Bool
	runs    atomic.Int32
	takes   time.Duration
}

func (j *job) run(ctx context.Context, _ *recipes.Lock) error {
	assert.True(j, j.running.CompareAndSwap(false, true), "two runs overlap")
	defer j.running.Store(false)
	select {
	case <-time.After(j.takes):
		j.runs.Add(1)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *world) once(c *client, tick time.Time, f func(context.Context, *recipes.Lock) error) bool {
	ran, err := c.RWMutex("q").Once(bg, tick, f)
	assert.NoError(w, err)
	return ran
}

func TestOnceRunsOncePerTick(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		j := &job{world: w, takes: 10 * time.Second}
		clients := []*client{w.client("a"), w.client("b"), w.client("c")}
		for tick := range 3 {
			planned := time.Now().Add(time.Minute).Truncate(time.Hour)
			var ran atomic.Int32
			var all sync.WaitGroup
			for _, c := range clients {
				all.Go(func() {
					if w.once(c, planned, j.run) {
						ran.Add(1)
					}
				})
			}
			all.Wait()
			require.EqualValues(w, 1, ran.Load())
			require.EqualValues(w, tick+1, j.runs.Load())
			require.False(w, w.once(clients[0], planned.Add(-time.Hour), j.run), "an earlier tick")
			time.Sleep(time.Hour)
		}
	})
}

// patient returns a store that keeps the session of a lost client for an hour.
func patient() *memdriver.Store { return memdriver.New(memdriver.WithSessionTimeout(time.Hour)) }

// steps are the requests that Once makes, in order, and the job itself (job0).
var steps = []faults.Op{faults.OpCreate, faults.OpValue, job0, faults.OpSetValue, faults.OpDelete}

const job0 faults.Op = -1

func TestTheNextRunsWhatADeadMachineHasNotDone(t *testing.T) {
	for _, op := range steps {
		for _, at := range []faults.Stage{faults.StageRequest, faults.StageReply} {
			t.Run(fmt.Sprintf("%v/%v", op, at), func(t *testing.T) {
				inWorld(t, func(w *world) { dies(w, op, at) })
			})
		}
	}
}

// dies checks that a second machine runs the job unless the first recorded its
// run.
func dies(w *world, op faults.Op, at faults.Stage) {
	ctx, cancel := context.WithCancel(bg)
	var first *client
	die := func() {
		w.store.Faults().CutOff(first.session())
		cancel()
	}
	first = w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
		if r.Op != op || r.Stage != at || ctx.Err() != nil {
			return faults.Fault{}
		}
		die()
		return faults.Fault{Lose: true}
	}), "first")
	second := w.client("second")
	j := &job{world: w, takes: time.Second}
	tick := time.Now()
	done := make(chan bool, 1)
	go func() {
		ran, _ := first.RWMutex("q").Once(ctx, tick, func(ctx context.Context, _ *recipes.Lock) error {
			if op == job0 && at == faults.StageRequest {
				die()
			}
			err := j.run(ctx, nil)
			if op == job0 && at == faults.StageReply {
				die()
			}
			return err
		})
		done <- ran
	}()
	synctest.Wait()

	again := w.once(second, tick, j.run)
	<-done
	_, token, err := second.RWMutex("q").Value(bg)
	require.NoError(w, err)
	require.NotZero(w, token)
	kept := op == faults.OpDelete || op == faults.OpSetValue && at == faults.StageReply
	require.Equal(w, !kept, again, "the second runs the job unless the first has kept its run")
	worked := kept || op == faults.OpSetValue || op == job0 && at == faults.StageReply
	require.EqualValues(w, 1+boolToInt(worked && !kept), j.runs.Load())
	require.False(w, w.once(second, tick, j.run), "the tick is done")
	time.Sleep(time.Minute) // until the store drops the first client's session
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestARunThatFailsIsLeftToTheNext(t *testing.T) {
	for name, want := range map[string]error{
		"error": errJob, "panic": nil, "goexit": nil, "unlock": recipes.ErrNotHeld, "shared": recipes.ErrNotRecorded, "lost": recipes.ErrLost,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c, d := w.client("a"), w.client("b")
				tick, done := time.Now(), make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recover() }()
					ran, err := c.RWMutex("q").Once(bg, tick, func(ctx context.Context, l *recipes.Lock) error {
						switch name {
						case "error":
							return errors.Join(errJob, recipes.ErrNotRecorded) // of another lock
						case "panic":
							panic(errJob)
						case "goexit":
							runtime.Goexit()
						case "unlock":
							return l.Unlock()
						case "shared": // stores a value other than its run
							assert.NoError(w, l.SetValue(ctx, tick.Add(-time.Hour).UTC().AppendFormat(nil, time.RFC3339Nano)))
							return l.Downgrade(ctx)
						}
						assert.NotZero(w, l.Token())
						w.store.Faults().Expire(c.session())
						<-l.Lost()
						return nil
					})
					assert.True(w, ran)
					assert.ErrorIs(w, err, want)
					assert.NotErrorIs(w, err, recipes.ErrNotRun)
					assert.Equal(w, name != "error", errors.Is(err, recipes.ErrNotRecorded), "%v", err)
				}()
				<-done
				require.True(w, w.once(d, tick, nothing))
				require.False(w, w.once(c, tick, nothing))
			})
		})
	}
}

func TestOnceRecordsARunWhoseContextHasEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		ctx, cancel := context.WithCancel(bg)
		ran, err := c.RWMutex("q").Once(ctx, time.Now(), func(context.Context, *recipes.Lock) error { cancel(); return nil })
		require.True(w, ran)
		require.NoError(w, err)
		require.False(w, w.once(c, time.Now(), nothing))
	})
}

func TestATickAheadOfTheStoresClockIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		ran, err := c.RWMutex("q").Once(bg, time.Now().Add(time.Minute+1), nothing)
		require.False(w, ran)
		require.ErrorIs(w, err, recipes.ErrNotRun)
		require.ErrorContains(w, err, "1m0s ahead of the store's clock")
		require.True(w, w.once(c, time.Now().Add(time.Minute), nothing))

		untold := w.clientOf(wrapped(w.store, timeless), "b")
		require.True(w, w.once(untold, time.Now().Add(24*time.Hour), nothing), "a store that does not tell its time")
	})
}

// The node is an hour older than the call, because a re-entry creates no node.
func TestATickIsComparedWithTheTimeOfTheCall(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		held := w.won(c.lock(bg))
		time.Sleep(time.Hour)
		ran, err := c.RWMutex("q").Once(held.Context(bg), time.Now(), nothing)
		require.NoError(w, err)
		require.True(w, ran)
		w.unlock(held)
	})
}

// Without the error, all calls would silently skip the job for a day.
func TestARunAheadOfTheStoresClockIsAnError(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		c := w.client("a")
		held := w.won(c.lock(bg))
		require.NoError(w, held.SetValue(bg, time.Now().Add(24*time.Hour).UTC().AppendFormat(nil, time.RFC3339)))
		w.unlock(held)
		m := c.RWMutex("q")
		for range 2 {
			_, once := m.Once(bg, time.Now(), nothing)
			_, per := m.OncePer(bg, time.Hour, nothing)
			for _, err := range []error{once, per} {
				require.ErrorIs(w, err, recipes.ErrNotRun)
				require.ErrorContains(w, err, "is 24h0m0s ahead of the store's clock")
			}
		}
		time.Sleep(25 * time.Hour)
		require.True(w, w.once(c, time.Now(), nothing))
	})
}

func same(s driver.Session) driver.Session { return s }

// timeless hides the store's time, as with a store that does not report it.
func timeless(s driver.Session) driver.Session { return timelessSession{s, driver.Inspect(s)} }

type timelessSession struct {
	driver.Session
	driver.Inspector
}

func (s timelessSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Created = time.Time{}
	return j, err
}

func TestOnceRefusesWhatMakesNoSense(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		m := c.RWMutex("q")
		held := w.won(c.lock(bg))
		require.NoError(w, held.SetValue(bg, []byte("a checkpoint")))
		w.unlock(held)
		for text, call := range map[string]func() (bool, error){
			"zero time":             func() (bool, error) { return c.RWMutex("p").Once(bg, time.Time{}, nothing) },
			"nil function":          func() (bool, error) { return m.Once(bg, time.Now(), nil) },
			"not the time of a run": func() (bool, error) { return m.Once(bg, time.Now(), nothing) },
			"0s is not positive":    func() (bool, error) { return c.RWMutex("p").OncePer(bg, 0, nothing) },
		} {
			ran, err := call()
			require.False(w, ran, text)
			w.matches(err, recipes.ErrNotRun)
			require.ErrorContains(w, err, text)
		}
	})
}

func TestOnceCostsTwoRequests(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		count := func() map[faults.Op]int64 {
			r := w.store.Stats().Requests
			delete(r, faults.OpList) // the request of Ping
			return r
		}
		require.True(w, w.once(c, time.Now(), nothing))
		require.Equal(w, map[faults.Op]int64{faults.OpCreate: 1, faults.OpValue: 1, faults.OpSetValue: 1, faults.OpDelete: 1}, count())
		require.False(w, w.once(c, time.Now(), nothing))
		require.Equal(w, map[faults.Op]int64{faults.OpCreate: 2, faults.OpValue: 2, faults.OpSetValue: 1, faults.OpDelete: 2}, count())
	})
}

func TestOnceRepeatsLostRequests(t *testing.T) {
	for _, op := range []faults.Op{faults.OpValue, faults.OpSetValue} {
		for _, committed := range []bool{false, true} {
			inWorld(t, func(w *world) {
				c := w.client("a")
				tick := time.Now()
				w.lose(c.session(), op, committed)
				require.True(w, w.once(c, tick, nothing))
				require.False(w, w.once(c, tick, nothing))
			})
		}
	}
}

// Clocks differ by up to a minute, starts are late, and some machines are down.
func TestOncePerRunsOnceForEachStartOfManyMachines(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for _, period := range []time.Duration{5 * time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%v/%d", period, seed), func(t *testing.T) {
				inWorldOf(t, patient, func(w *world) { startsOfManyMachines(w, period, rand.New(rand.NewPCG(seed, 0))) })
			})
		}
	}
}

func startsOfManyMachines(w *world, period time.Duration, rnd *rand.Rand) {
	const machines, starts = 4, 40
	upTo := func(d time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(d) + 1)) }
	var runs [starts]atomic.Int32
	var all sync.WaitGroup
	begin := time.Now().Add(time.Hour)
	for m := range machines {
		c := w.client(fmt.Sprint("m", m))
		ahead := upTo(time.Minute)
		for i := range starts {
			at := begin.Add(time.Duration(i)*period - ahead + upTo(10*time.Second))
			if down := rnd.IntN(3) > 0; down && m != i%machines {
				continue
			}
			all.Go(func() {
				time.Sleep(time.Until(at))
				ran, err := c.RWMutex("q").OncePer(bg, period, func(context.Context, *recipes.Lock) error { time.Sleep(time.Second); return nil })
				assert.NoError(w, err)
				if ran {
					runs[i].Add(1)
				}
			})
		}
	}
	all.Wait()
	for i := range runs {
		assert.EqualValues(w, 1, runs[i].Load(), "start %d", i)
	}
}

func TestOncePerHoldsThePeriodWhenCalledMoreOften(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		c := w.client("a")
		runs := 0
		var last time.Time
		for range 48*60 + 1 {
			ran, err := c.RWMutex("q").OncePer(bg, time.Hour, func(context.Context, *recipes.Lock) error {
				assert.True(w, last.IsZero() || time.Since(last) >= 56*time.Minute)
				last = time.Now()
				return nil
			})
			require.NoError(w, err)
			if ran {
				runs++
			}
			time.Sleep(time.Minute)
		}
		require.Equal(w, 49, runs, "at 0:00, and once in each of the 48 hours after that")
	})
}

func TestOncePerRunsOnceInEachPeriod(t *testing.T) {
	const h = time.Hour
	for name, c := range map[string]struct {
		store  func(driver.Session) driver.Session
		period time.Duration
		pauses []time.Duration // before each call
		ran    string
	}{
		"pauses":               {same, h, []time.Duration{0, 0, h - time.Minute, 0, h * 3 / 2, 0, h - 2*time.Minute, 0}, "+-+-+-+-"},
		"by the machine's own": {timeless, h, []time.Duration{0, 0, h, 0}, "+-+-"},
		"daylight saving time": {same, 20 * h, []time.Duration{0, 24 * h, 23 * h, 24 * h, 25 * h, 24 * h}, "++++++"},
	} {
		inWorldOf(t, patient, func(w *world) {
			m, ran := w.clientOf(wrapped(w.store, c.store), "a").RWMutex("q"), ""
			did, err := m.OncePer(bg, c.period, func(context.Context, *recipes.Lock) error { return errJob })
			require.True(w, did)
			require.ErrorIs(w, err, errJob)
			for _, pause := range c.pauses {
				time.Sleep(pause)
				did, err := m.OncePer(bg, c.period, nothing)
				require.NoError(w, err)
				ran += map[bool]string{true: "+", false: "-"}[did]
			}
			assert.Equal(w, c.ran, ran, name)
		})
	}
}

// Both calls start together, and the second waits longer than the period.
func TestOncePerCountsFromTheCall(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		j := &job{world: w, takes: 90 * time.Minute}
		var all sync.WaitGroup
		for _, host := range []string{"a", "b"} {
			c := w.client(host)
			all.Go(func() { _, err := c.RWMutex("q").OncePer(bg, time.Hour, j.run); assert.NoError(w, err) })
		}
		all.Wait()
		require.EqualValues(w, 1, j.runs.Load())
	})
}

// The run after a failed one begins late, perhaps just before the next start.
func TestTwoRunsBeginHalfAPeriodApartAfterAFailedOne(t *testing.T) {
	for _, worked := range []time.Duration{time.Minute, 20 * time.Minute, 29 * time.Minute, 31 * time.Minute, 59 * time.Minute, 62 * time.Minute, 91 * time.Minute} {
		inWorldOf(t, patient, func(w *world) {
			began := time.Now()
			fails := func(context.Context, *recipes.Lock) error { time.Sleep(worked); return errJob }
			go w.client("a").RWMutex("q").OncePer(bg, time.Hour, fails)
			time.Sleep(time.Second)
			m := w.client("b").RWMutex("q")
			ran, err := m.OncePer(bg, time.Hour, nothing)
			require.NoError(w, err)
			require.True(w, ran)
			late := time.Since(began)
			next := late.Truncate(time.Hour) + time.Hour
			time.Sleep(next - late)
			ran, err = m.OncePer(bg, time.Hour, nothing)
			require.NoError(w, err)
			assert.Equal(w, next-late >= 30*time.Minute, ran, "%v after a run", next-late)
		})
	}
}

func TestARunThatWasKeptIsNotReportedAsNotKept(t *testing.T) {
	inWorld(t, func(w *world) {
		var c *client
		c = w.clientOf(faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
			if r.Op != faults.OpSetValue || r.Stage != faults.StageReply {
				return faults.Fault{}
			}
			w.store.Faults().Expire(c.session())
			return faults.Fault{Lose: true}
		}), "a")
		tick := time.Now()
		ran, err := c.RWMutex("q").Once(bg, tick, nothing)
		require.True(w, ran)
		require.ErrorIs(w, err, recipes.ErrLost)
		require.NotErrorIs(w, err, recipes.ErrNotRecorded)
		require.False(w, w.once(c, tick, nothing))
	})
}

// A waiting call may find a run that began after it.
func TestARunAfterTheCallIsNotAheadOfTheClock(t *testing.T) {
	inWorldOf(t, patient, func(w *world) {
		a, b := w.client("a"), w.client("b")
		held := w.won(a.lock(bg))
		done := make(chan struct{})
		go func() {
			defer close(done)
			ran, err := b.RWMutex("q").OncePer(bg, time.Hour, nothing)
			assert.NoError(w, err)
			assert.False(w, ran)
		}()
		time.Sleep(30 * time.Minute)
		ran, err := a.RWMutex("q").OncePer(held.Context(bg), time.Hour, nothing)
		require.NoError(w, err)
		require.True(w, ran)
		w.unlock(held)
		<-done
	})
}
