package recipes_test

import (
	"context"
	"errors"
	"fmt"
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

var three = []string{"a", "b", "c"}

// lockers have a client each, so that a test can end their sessions separately.
func (w *world) lockers() (clients []*client, lockers []recipes.Locker) {
	for _, name := range three {
		clients = append(clients, w.client("of-"+name))
	}
	for i := len(three) - 1; i >= 0; i-- {
		lockers = append(lockers, clients[i].RWMutex(three[i]))
	}
	return clients, lockers
}

type locksResult struct {
	locks *recipes.Locks
	err   error
}

func lockingAll(ctx context.Context, lockers ...recipes.Locker) <-chan locksResult {
	c := make(chan locksResult, 1)
	go func() {
		l, err := recipes.LockAll(ctx, lockers...)
		c <- locksResult{l, err}
	}()
	synctest.Wait()
	return c
}

func over(w *world, c <-chan locksResult) locksResult {
	w.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		return r
	default:
		require.FailNow(w, "LockAll has not returned")
		return locksResult{}
	}
}

func (w *world) allFree() {
	w.Helper()
	other := w.client("other")
	for _, name := range three {
		l, err := other.RWMutex(name).TryLock(bg)
		require.NoError(w, err, name)
		w.unlock(l)
	}
	require.NoError(w, other.Close())
}

func TestLockAllTakesLocksInTheOrderOfTheirNames(t *testing.T) {
	inWorld(t, func(w *world) {
		var granted []string
		c := w.client("web", recipes.WithTrace(&recipes.Trace{Granted: func(_ context.Context, i recipes.GrantedInfo) {
			granted = append(granted, fmt.Sprint(i.Lock, " ", i.Mode))
		}}))
		before := w.store.Stats()
		locks, err := recipes.LockAll(bg, c.RWMutex("b"), c.RWMutex("c").RLocker(), c.RWMutex("a"))
		require.NoError(w, err)
		assert.Equal(w, []string{"a exclusive", "b exclusive", "c shared"}, granted)
		assert.Equal(w, "b: exclusive, web-W-0000000000, token 2, held; c: shared, web-R-0000000000, token 3, held; "+
			"a: exclusive, web-W-0000000000, token 1, held", fmt.Sprint(locks))
		require.NoError(w, locks.Err())
		require.NoError(w, locks.Unlock())
		assert.Equal(w, map[faults.Op]int64{faults.OpCreate: 3, faults.OpDelete: 3}, w.spent(before), "requests are the sum of those of the locks")
		require.ErrorIs(w, locks.Err(), recipes.ErrNotHeld)
		require.ErrorIs(w, locks.Unlock(), recipes.ErrNotHeld)
	})
}

func TestUnitsOfASemaphoreAreTakenWithLocks(t *testing.T) {
	inWorld(t, func(w *world) {
		c, other := w.client("a"), w.client("b")
		slots := c.Semaphore("slots", 3)
		assert.Equal(w, "slots", slots.Locker(1).Name())
		locks, err := recipes.LockAll(bg, slots.Locker(2), c.RWMutex("q"))
		require.NoError(w, err)
		_, err = recipes.TryLockAll(bg, other.RWMutex("p"), other.Semaphore("slots", 3).Locker(2))
		require.ErrorIs(w, err, recipes.ErrLocked)
		one, err := recipes.TryLockAll(bg, other.RWMutex("p"), other.Semaphore("slots", 3).Locker(1))
		require.NoError(w, err)
		require.NoError(w, one.Unlock())
		require.NoError(w, locks.Unlock())
	})
}

func TestALossWhileLockAllWaitsGivesBackTheOthers(t *testing.T) {
	for how, lose := range losses {
		for waitsFor := 1; waitsFor < len(three); waitsFor++ {
			for lost := range waitsFor {
				t.Run(fmt.Sprintf("%s, %s waits, %s is lost", how, three[waitsFor], three[lost]), func(t *testing.T) {
					inWorld(t, func(w *world) {
						held, err := w.client("holder").RWMutex(three[waitsFor]).Lock(bg)
						require.NoError(w, err)
						clients, lockers := w.lockers()
						call := lockingAll(bg, lockers...)
						time.Sleep(soon)
						lose(w, clients[lost], three[lost])
						time.Sleep(soon)
						r := over(w, call)
						assert.Nil(w, r.locks)
						require.ErrorIs(w, r.err, recipes.ErrLost)
						assert.ErrorContains(w, r.err, "dlock: "+three[waitsFor]+": ")
						assert.ErrorContains(w, r.err, "dlock: "+three[lost]+": of-"+three[lost]+"-W-")
						assert.NotErrorIs(w, r.err, context.Canceled, "the caller has not cancelled the call")
						w.unlock(held)
						w.allFree()
					})
				})
			}
		}
	}
}

func TestTheFirstLossEndsTheContextOfAllLocks(t *testing.T) {
	for how, lose := range losses {
		for lost, name := range three {
			t.Run(how+", "+name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					clients, lockers := w.lockers()
					locks, err := recipes.LockAll(bg, lockers...)
					require.NoError(w, err)
					ctx := locks.Context(w.Context())
					time.Sleep(soon)
					require.NoError(w, ctx.Err())
					require.False(w, isClosed(locks.Lost()))
					lose(w, clients[lost], name)
					time.Sleep(soon)
					require.ErrorIs(w, context.Cause(ctx), recipes.ErrLost)
					require.True(w, isClosed(locks.Lost()))
					require.ErrorIs(w, locks.Err(), recipes.ErrLost)
					err = locks.Unlock()
					require.ErrorIs(w, err, recipes.ErrLost)
					assert.ErrorContains(w, err, "dlock: "+name+": ")
					assert.NotContains(w, err.Error(), ";", "the other locks were given back without an error")
					w.allFree()
				})
			})
		}
	}
}

func TestLostOfLocksClosesForNoUnlock(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		two := func() *recipes.Locks {
			locks, err := recipes.LockAll(bg, c.RWMutex("p"), c.RWMutex("q"))
			require.NoError(w, err)
			return locks
		}
		one := two()
		require.NoError(w, one.All()[0].Unlock())
		one.Lost()
		synctest.Wait()
		assert.False(w, isClosed(one.Lost()), "an Unlock is no loss")
		w.store.Faults().ExpireAll()
		synctest.Wait()
		assert.True(w, isClosed(one.Lost()), "the other one is lost")
		require.ErrorIs(w, one.Unlock(), recipes.ErrLost)
		both := two()
		w.store.Faults().ExpireAll()
		synctest.Wait()
		require.ErrorIs(w, both.Unlock(), recipes.ErrLost)
		both.Lost()
		synctest.Wait()
		assert.False(w, isClosed(both.Lost()), "after Unlock")
	})
}

func TestALossDuringTheLastGrantIsAnErrorOfLockAll(t *testing.T) {
	inWorld(t, func(w *world) {
		clients, lockers := w.lockers()
		lockers[0] = clients[2].RWMutex("c", recipes.WithTrace(&recipes.Trace{Granted: func(context.Context, recipes.GrantedInfo) {
			w.store.Faults().Expire(clients[0].session())
		}}))
		locks, err := recipes.LockAll(bg, lockers...)
		assert.Nil(w, locks)
		require.ErrorIs(w, err, recipes.ErrLost)
		w.allFree()
	})
}

func TestEachFailedUnlockIsInTheError(t *testing.T) {
	inWorld(t, func(w *world) {
		clients, lockers := w.lockers()
		locks, err := recipes.LockAll(bg, lockers...)
		require.NoError(w, err)
		w.store.Faults().RemoveQueue("a") // the client does not notice this before Unlock
		heal := w.store.Faults().CutOff(clients[1].session())
		healToo := w.store.Faults().CutOff(clients[2].session())
		began := time.Now()
		err = locks.Unlock()
		assert.Equal(w, 2*time.Second, time.Since(began), "all are given back at the same time")
		require.ErrorIs(w, err, recipes.ErrLost)
		require.ErrorIs(w, err, recipes.ErrUnlock)
		require.ErrorIs(w, err, driver.ErrUnavailable)
		for _, name := range three {
			assert.ErrorContains(w, err, "dlock: "+name+": ")
		}
		heal()
		healToo()
		time.Sleep(soon)
		w.allFree()
	})
}

func TestAFailureDuringLockAllIsJoinedToThoseOfUnlock(t *testing.T) {
	inWorld(t, func(w *world) {
		held, err := w.client("holder").RWMutex("c").Lock(bg)
		require.NoError(w, err)
		clients, lockers := w.lockers()
		ctx, cancel := context.WithTimeout(bg, 3*time.Second)
		defer cancel()
		began, call := time.Now(), lockingAll(ctx, lockers...)
		time.Sleep(soon)
		heal := w.store.Faults().CutOff(clients[0].session())
		time.Sleep(4*time.Second + time.Millisecond)
		r := over(w, call)
		require.ErrorIs(w, r.err, recipes.ErrTimeout)
		require.ErrorIs(w, r.err, recipes.ErrUnlock)
		assert.ErrorContains(w, r.err, "dlock: c: timed out after 3s: held by holder-W-0000000000")
		assert.ErrorContains(w, r.err, "dlock: a: unlocked, but ")
		assert.WithinDuration(w, began.Add(5*time.Second), time.Now(), 2*time.Millisecond)
		heal()
		time.Sleep(soon)
		w.unlock(held)
		w.allFree()
	})
}

func TestTheDeadlineIsForAllLocksTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.client("holder")
		var held []*recipes.Lock
		for _, name := range three {
			l, err := holder.RWMutex(name).Lock(bg)
			require.NoError(w, err)
			held = append(held, l)
		}
		_, lockers := w.lockers()
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		call := lockingAll(ctx, lockers...)
		for _, l := range held[:2] {
			time.Sleep(4 * time.Second)
			w.unlock(l)
		}
		time.Sleep(2*time.Second + time.Millisecond)
		r := over(w, call)
		require.ErrorIs(w, r.err, recipes.ErrTimeout)
		assert.ErrorContains(w, r.err, "dlock: c: ")
		w.unlock(held[2])
		w.allFree()
	})
}

func TestTryLockAllTakesAllOrNone(t *testing.T) {
	inWorld(t, func(w *world) {
		_, lockers := w.lockers()
		for _, name := range three {
			held, err := w.client("holder").RWMutex(name).RLock(bg)
			require.NoError(w, err)
			locks, err := recipes.TryLockAll(bg, lockers...)
			assert.Nil(w, locks)
			require.ErrorIs(w, err, recipes.ErrLocked)
			assert.EqualError(w, err, "dlock: "+name+": locked by another contender")
			w.unlock(held)
			w.allFree()
		}
		locks, err := recipes.TryLockAll(bg, lockers...)
		require.NoError(w, err)
		require.NoError(w, locks.Unlock())
	})
}

func TestLocksAreTakenAgainWithTheirContext(t *testing.T) {
	inWorld(t, func(w *world) {
		_, lockers := w.lockers()
		locks, err := recipes.LockAll(bg, lockers...)
		require.NoError(w, err)
		before := w.store.Stats()
		again, err := recipes.LockAll(locks.Context(bg), lockers...)
		require.NoError(w, err)
		require.NoError(w, again.Unlock())
		assert.Empty(w, w.spent(before))
		require.NoError(w, locks.All()[1].Unlock())
		assert.ErrorIs(w, context.Cause(locks.Context(bg)), recipes.ErrNotHeld, "one of them is no longer held")
		assert.False(w, isClosed(locks.Lost()))
		require.ErrorIs(w, locks.Unlock(), recipes.ErrNotHeld)
	})
}

var lockAllCalls = map[string]func(context.Context, ...recipes.Locker) (*recipes.Locks, error){
	"LockAll": recipes.LockAll, "TryLockAll": recipes.TryLockAll,
}

func TestAMistakeInTheLocksIsFoundBeforeOneIsTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		c, closed := w.client("a"), w.client("closed")
		require.NoError(w, closed.Close())
		good := c.RWMutex("a")
		for want, lockers := range map[string][]recipes.Locker{
			"dlock: lock all: no locks":             {},
			"dlock: lock all: nil lock":             {good, nil},
			"dlock: b: client closed":               {good, closed.RWMutex("b")},
			"dlock: d: cannot acquire 3 of 2 units": {good, c.Semaphore("d", 2).Locker(3)},
			"dlock: e: client closed":               {good, closed.Semaphore("e", 2).Locker(1)},
			"dlock: a: the lock is given twice":     {good, c.Semaphore("a", 2).Locker(1)},
			"dlock: b: the lock is given twice":     {c.RWMutex("b"), good, c.RWMutex("b").RLocker()},
			`dlock: b//c: bad name: "b//c" has an empty segment: a slash at its start or end, or two slashes in a row`: {good, c.RWMutex("b//c")},
		} {
			for name, call := range lockAllCalls {
				before := w.store.Stats()
				locks, err := call(bg, lockers...)
				assert.Nil(w, locks, name)
				assert.EqualError(w, err, want, name)
				assert.Empty(w, w.spent(before), name)
			}
		}
		for name, call := range lockAllCalls {
			_, err := call(nil, good) //nolint:staticcheck // the mistake is the nil context
			assert.EqualError(w, err, "dlock: lock all: nil context", name)
		}
	})
}

// In one store these are the same lock, so LockAll would wait for itself.
func TestLocksOfOneNameMustBeInDifferentStores(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client("a"), w.client("b")
		elsewhere := w.clientOf(memdriver.New(), "a") // another store, with equal nodes and tokens
		locks, err := recipes.LockAll(bg, elsewhere.RWMutex("c"), a.RWMutex("c"))
		require.NoError(w, err)
		assert.Equal(w, locks.All()[0].Node(), locks.All()[1].Node())
		require.NoError(w, locks.Unlock())
		for name, call := range lockAllCalls {
			ctx, cancel := context.WithTimeout(bg, time.Minute)
			locks, err := call(ctx, a.RWMutex("c"), b.RWMutex("c"))
			cancel()
			assert.Nil(w, locks, name)
			assert.EqualError(w, err, "dlock: c: the lock is given twice: two clients use one store", name)
		}
		w.allFree()
	})
}

func TestAPanicOfAHookDuringLockAllLeavesNoLock(t *testing.T) {
	inWorld(t, func(w *world) {
		clients, lockers := w.lockers()
		lockers[0] = clients[2].RWMutex("c", recipes.WithTrace(&recipes.Trace{Queued: func(context.Context, recipes.QueuedInfo) { panic("hook") }}))
		assert.PanicsWithValue(w, "hook", func() { _, _ = recipes.LockAll(bg, lockers...) })
		w.allFree()
	})
}

// foreign is a Locker of another package that cannot be a map key.
type foreign struct {
	recipes.Locker
	tags []string
}

func TestALockerOfAnotherPackageIsTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		own := foreign{Locker: c.RWMutex("b"), tags: []string{"x"}}
		locks, err := recipes.LockAll(bg, own, c.RWMutex("a"))
		require.NoError(w, err)
		require.NoError(w, locks.Unlock())

		broken := errors.New("broken")
		locks, err = recipes.LockAll(bg, c.RWMutex("a"), failingLocker{broken})
		assert.Nil(w, locks)
		require.ErrorIs(w, err, broken)
		locks, err = recipes.LockAll(bg, c.RWMutex("a"), failingLocker{})
		assert.Nil(w, locks)
		require.ErrorIs(w, err, recipes.ErrNotHeld, "it has returned neither a Lock nor an error")
		w.allFree()
	})
}

type failingLocker struct{ err error }

func (f failingLocker) Lock(context.Context) (*recipes.Lock, error)    { return nil, f.err }
func (f failingLocker) TryLock(context.Context) (*recipes.Lock, error) { return nil, f.err }
func (failingLocker) Name() string                                     { return "z" }
