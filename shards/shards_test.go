package shards_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/shards"
)

var bg = context.Background()

// After each change, every worker watches and lists the queue again.
func TestRequestsOfAChange(t *testing.T) {
	inFleet(t, 24, func(f *fleet) {
		var workers []*worker
		for m := int64(1); m <= 5; m++ {
			before := f.store.Stats()
			moved := int64(f.moved(func() { workers = append(workers, f.join(fmt.Sprint("w", m))) }))
			f.divided(int(m))
			if m > 1 {
				assert.Equal(f, map[faults.Op]int64{
					faults.OpWatchQueue: m, faults.OpList: m + 1, faults.OpCreate: 1 + moved, faults.OpDelete: moved,
				}, f.spent(before), "%d workers", m)
			}
		}
		before := f.store.Stats()
		moved := int64(f.moved(workers[1].leave))
		assert.Equal(f, map[faults.Op]int64{
			faults.OpWatchQueue: 4, faults.OpList: 4, faults.OpCreate: moved, faults.OpDelete: 1 + moved,
		}, f.spent(before))
		f.divided(4)
		f.left(workers...)
		assert.Zero(f, f.store.Stats().Nodes, "before the clients are closed")
		assert.Zero(f, f.store.Stats().Watches)
	})
}

func TestOthersServeTheShardsOfADeadWorkerWithinTheSessionTimeout(t *testing.T) {
	inFleet(t, 12, func(f *fleet) {
		a, b, c := f.join("a"), f.join("b"), f.join("c")
		f.divided(3)
		revive := f.kill(b)
		died := time.Now()
		for f.shares()["a"]+f.shares()["c"] < f.n {
			require.Less(f, time.Since(died), sessionTimeout+time.Second, "%v", f.shares())
			time.Sleep(time.Second)
		}
		f.divided(2)
		revive()
		time.Sleep(time.Minute)
		f.divided(3)
		assert.NotZero(f, f.shares()["b"], "b has joined again")
		f.left(a, b, c)
	})
}

func TestTheLockOfAMovedShardIsGivenBackWhenWorkHasReturned(t *testing.T) {
	inFleet(t, 12, func(f *fleet) {
		a := f.client("a")
		release := make(chan struct{})
		ended := 0
		f.run(a, func(ctx context.Context, lock *dlock.Lock, shard int) error {
			f.begin("a", shard, lock)
			defer f.end(shard, lock)
			<-ctx.Done()
			assert.NoError(f, lock.Err(), "the lock is still held")
			f.mu.Lock()
			ended++
			f.mu.Unlock()
			<-release
			return errors.New("ignored, because the shard has moved")
		})
		f.divided(1)
		b := f.join("b")
		time.Sleep(time.Minute)
		assert.Equal(f, 6, ended, "contexts that have ended")
		assert.Equal(f, map[string]int{"a": 12}, f.shares(), "the locks have not been given back")
		a.leave()
		synctest.Wait()
		assert.Equal(f, 12, ended)
		queue, err := b.RWMutex("jobs").Queue(bg)
		require.NoError(f, err)
		assert.Len(f, queue, 1, "a has left, so b waits for all shards")
		assert.Equal(f, map[string]int{"a": 12}, f.shares())
		close(release)
		assert.Equal(f, map[string]int{"b": 12}, f.shares())
		f.left(a, b)
	})
}

func TestShardsHaveOneWorkerEachUnderAllFaults(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inFleet(t, 12, func(f *fleet) { f.storm(rand.New(rand.NewPCG(seed, 9))) })
		})
	}
}

// storm starts, stops, kills and disconnects workers at random.
func (f *fleet) storm(r *rand.Rand) {
	var workers []*worker
	for round := range 2 {
		var heal []func()
		for step := range 6 {
			switch k := r.IntN(max(1, len(workers))); {
			case len(workers) == 0 || len(workers) < 6 && r.IntN(3) == 0:
				w := f.client(fmt.Sprintf("w%d.%d", round, step))
				w.slow = time.Duration(r.IntN(3000)) * time.Millisecond
				f.run(w, f.workOf(w))
				workers = append(workers, w)
			case r.IntN(4) == 0:
				workers[k].leave()
				time.Sleep(10 * time.Second)
				if err := f.result(workers[k]); !errors.Is(err, dlock.ErrUnlock) { // the worker may be cut off
					require.ErrorIs(f, err, context.Canceled)
				}
				workers = slices.Delete(workers, k, k+1)
			case r.IntN(4) == 0:
				heal = append(heal, f.kill(workers[k]))
			case r.IntN(3) == 0:
				f.store.Faults().Expire(workers[k].session())
			case r.IntN(2) == 0:
				heal = append(heal, f.store.Faults().CutOff(workers[k].session()))
			default:
				f.store.Faults().Reset(workers[k].session())
			}
			time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
		for _, h := range heal {
			h()
		}
		time.Sleep(time.Minute)
		if len(workers) > 0 {
			f.divided(len(workers))
		}
	}
	f.left(workers...)
}

func TestWorkThatReturnsNilIsCalledAgainWithTheSameLock(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		w := f.client("a")
		tokens := make(chan int64, 99)
		f.run(w, func(_ context.Context, lock *dlock.Lock, _ int) error {
			tokens <- lock.Token()
			return nil
		})
		time.Sleep(10*time.Second + time.Millisecond)
		assert.Len(f, tokens, 11, "one a second")
		before := f.store.Stats()
		time.Sleep(10 * time.Second)
		assert.Len(f, tokens, 21)
		assert.Equal(f, <-tokens, <-tokens)
		assert.Empty(f, f.spent(before))
		f.left(w)
	})
}

func TestAnErrorOfWorkEndsRunAndGivesAllBack(t *testing.T) {
	inFleet(t, 12, func(f *fleet) {
		b := f.join("b")
		a := f.client("a")
		broken := errors.New("broken")
		fail := make(chan struct{})
		good := f.workOf(a)
		var failing atomic.Bool
		f.run(a, func(ctx context.Context, lock *dlock.Lock, shard int) error {
			if failing.CompareAndSwap(false, true) {
				<-fail
				return fmt.Errorf("shard %d: %w", shard, broken)
			}
			return good(ctx, lock, shard)
		})
		close(fail)
		err := f.result(a)
		require.ErrorIs(f, err, broken)
		assert.Regexp(f, `^dlock: jobs/(\d+): shard \d+: broken$`, err.Error())
		assert.Equal(f, map[string]int{"b": 12}, f.shares())
		f.left(b)
	})
}

// Run must ignore an error of work between the loss and the end of ctx.
func TestAnErrorOfWorkAfterALossEndsNothing(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		w := f.client("a")
		fail := make(chan error)
		f.run(w, func(ctx context.Context, _ *dlock.Lock, _ int) error {
			select {
			case err := <-fail:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		f.store.Faults().PauseAll(2 * sessionTimeout)
		fail <- errors.New("late")
		time.Sleep(time.Minute)
		f.left(w)
	})
}

// runtime.Goexit unwinds work as a panic does, but does not end the test process.
func TestTheLockIsGivenBackIfWorkDoesNotReturn(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		w := f.client("a")
		f.run(w, func(context.Context, *dlock.Lock, int) error {
			runtime.Goexit()
			return nil
		})
		assert.Equal(f, 1, f.store.Stats().Nodes, "the membership")
		f.left(w)
	})
}

func TestRunOutlastsAnOutage(t *testing.T) {
	inFleet(t, 6, func(f *fleet) {
		a := f.client("a")
		var lost []error
		work := f.workOf(a)
		f.run(a, func(ctx context.Context, lock *dlock.Lock, shard int) error {
			err := work(ctx, lock, shard)
			f.mu.Lock()
			defer f.mu.Unlock()
			lost = append(lost, context.Cause(ctx))
			return err
		})
		b := f.join("b")
		require.NotEmpty(f, lost)
		lost = nil
		up := f.store.Faults().Down()
		time.Sleep(sessionTimeout)
		assert.Equal(f, map[string]int{"": 6}, f.shares(), "locks are lost before the store can grant them")
		for _, err := range lost {
			require.ErrorIs(f, err, dlock.ErrLost)
		}
		time.Sleep(5 * time.Minute)
		up()
		time.Sleep(time.Minute)
		f.divided(2)
		f.left(a, b)
	})
}

func TestWhatRunReturnsIfALockCannotBeGivenBack(t *testing.T) {
	for _, refusal := range []error{driver.ErrUnavailable, fs.ErrPermission} {
		inFleet(t, 2, func(f *fleet) {
			var refuses atomic.Bool
			a := &worker{name: "a", result: make(chan error, 1)}
			a.Client = dlock.NewClient(faults.New(f.store, func(_ context.Context, r faults.Request) faults.Fault {
				return faults.Fault{Lose: r.Op == faults.OpDelete && refuses.Load(), Err: refusal}
			}), dlock.WithHostname(a.name))
			defer a.Close()
			f.run(a, f.workOf(a))
			f.divided(1)
			refuses.Store(true)
			b := f.join("b")
			time.Sleep(time.Minute)
			if refusal == driver.ErrUnavailable {
				require.Empty(f, a.result, "a shard has moved, and Run outlasts the outage")
				a.leave()
				time.Sleep(time.Minute)
			}
			err := f.result(a)
			require.ErrorIs(f, err, dlock.ErrUnlock)
			require.ErrorIs(f, err, refusal)
			require.NoError(f, a.Close())
			time.Sleep(time.Minute)
			f.divided(1)
			f.left(b)
		})
	}
}

func TestAWorkerWhoseMembershipWasRemovedJoinsAgain(t *testing.T) {
	inFleet(t, 6, func(f *fleet) {
		a, b := f.join("a"), f.join("b")
		f.store.Faults().RemoveQueue("jobs")
		time.Sleep(5 * time.Second)
		f.divided(2)
		queue, err := a.RWMutex("jobs").Queue(bg)
		require.NoError(f, err)
		assert.Len(f, queue, 2)
		f.store.Faults().RemoveQueue("jobs/3")
		time.Sleep(5 * time.Second)
		f.divided(2)
		f.left(a, b)
	})
}

func TestAProcessBeginsAgainOnlyWhenItsEarlierWorkHasReturned(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		w := f.client("a")
		calls := make(chan struct{}, 9)
		release := make(chan struct{})
		f.run(w, func(ctx context.Context, _ *dlock.Lock, _ int) error {
			calls <- struct{}{}
			<-ctx.Done()
			<-release
			return nil
		})
		f.store.Faults().Expire(w.session())
		time.Sleep(time.Hour)
		assert.Len(f, calls, 1)
		close(release)
		time.Sleep(5 * time.Second)
		assert.Len(f, calls, 2)
		f.left(w)
	})
}

func TestShutdownOfTheClientEndsRun(t *testing.T) {
	inFleet(t, 6, func(f *fleet) {
		a, b := f.join("a"), f.join("b")
		require.NoError(f, a.Shutdown(bg))
		require.ErrorIs(f, f.result(a), dlock.ErrClosed)
		f.divided(1)
		f.left(b)
	})
}

func TestOptionsOfTheClientDoNotHinderRun(t *testing.T) {
	inFleet(t, 6, func(f *fleet) {
		options := []dlock.Option{
			dlock.WithTimeout(time.Millisecond), dlock.WithMaxQueue(1), dlock.WithMaxHold(time.Minute),
		}
		a := f.join("a", options...)
		a2 := &worker{Client: a.Client, name: "a2", result: make(chan error, 1)}
		f.run(a2, f.workOf(a2))
		f.divided(2)
		a.slow, a2.slow = time.Minute, time.Minute
		b := f.join("b", options...)
		time.Sleep(time.Hour)
		f.divided(3)
		assert.Len(f, f.shares(), 3, "two calls of Run on one client are two workers")
		before := f.store.Stats()
		time.Sleep(time.Hour)
		assert.Empty(f, f.spent(before))
		a.slow, a2.slow = 0, 0
		f.left(a, a2, b)
	})
}

// If Run re-entered the caller's lock, both would work on the shard at once.
func TestRunDoesNotReEnterLocksOfItsContext(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		w := f.client("a")
		lock, err := w.RWMutex("jobs/0").Lock(bg)
		require.NoError(f, err)
		ctx, cancel := context.WithCancel(lock.Context(bg))
		called := false
		err = nil
		go func() {
			err = shards.Run(ctx, w.Client, "jobs", 1, func(context.Context, *dlock.Lock, int) error {
				called = true
				return nil
			})
		}()
		time.Sleep(time.Minute)
		cancel()
		synctest.Wait()
		assert.False(f, called)
		require.ErrorIs(f, err, context.Canceled)
		require.NoError(f, lock.Unlock())
	})
}

func TestAnExclusiveLockOfTheNameKeepsNewWorkersOut(t *testing.T) {
	inFleet(t, 6, func(f *fleet) {
		operator := f.client("operator")
		lock, err := operator.RWMutex("jobs").Lock(bg)
		require.NoError(f, err)
		a := f.join("a")
		assert.Equal(f, map[string]int{"": 6}, f.shares())
		require.NoError(f, lock.Unlock())
		f.divided(1)

		waiting := make(chan error)
		go func() {
			lock, err = operator.RWMutex("jobs").Lock(bg)
			waiting <- err
		}()
		synctest.Wait()
		f.divided(1)
		f.store.Faults().Expire(a.session())
		require.NoError(f, <-waiting)
		time.Sleep(time.Minute)
		assert.Equal(f, map[string]int{"": 6}, f.shares(), "who joins again is a new worker")
		require.NoError(f, lock.Unlock())
		f.divided(1)
		f.left(a)
	})
}

func TestBadInput(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		never := func(context.Context, *dlock.Lock, int) error { panic("work was called") }
		c := f.client("a").Client
		run := func(c *dlock.Client, name string, n int, work shards.Work) error {
			return shards.Run(bg, c, name, n, work)
		}
		require.EqualError(f, run(c, "jobs", 0, never), "dlock: shards: 0 shards, want 1 or more")
		require.EqualError(f, run(c, "jobs", 1, nil), "dlock: shards: nil work")
		var none context.Context
		require.EqualError(f, shards.Run(none, c, "jobs", 1, never), "dlock: shards: nil context")
		closed := f.client("b").Client
		require.NoError(f, closed.Close())
		require.ErrorIs(f, run(closed, "jobs", 1, never), dlock.ErrClosed)
		require.ErrorIs(f, run(c, "a//b", 1, never), dlock.ErrBadName)
		require.ErrorIs(f, run(c, strings.Repeat("a", 511), 1, never), dlock.ErrBadName)
		ended, cancel := context.WithCancel(bg)
		cancel()
		require.ErrorIs(f, shards.Run(ended, c, "jobs", 1, never), context.Canceled)
		assert.Zero(f, f.store.Stats().Nodes)
	})
}
