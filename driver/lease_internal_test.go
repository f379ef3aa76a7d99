package driver

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/leasehook"
)

// clocks are fake clocks that step advances without firing timers.
type clocks struct {
	*clock
	mu         sync.Mutex
	mono, wall time.Duration
}

func newClocks() *clocks {
	c := new(clocks)
	c.clock = newClock(func() (mono, wall time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.mono, c.wall
	})
	return c
}

func (c *clocks) step(mono, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono += mono
	c.wall += wall
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

const term = time.Hour // so long that no timer fires

func running(term time.Duration, from Instant, clock func() Instant) *Lease {
	l := newLease(2*term, term, clock)
	l.Renew(from)
	return l
}

func TestErrReportsTheEndBeforeAnyTimerHasRun(t *testing.T) {
	for name, c := range map[string]struct{ mono, wall time.Duration }{
		"process paused":                  {term, term},
		"machine slept, monotonic halted": {0, term},
		"wall clock set back meanwhile":   {term, -24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			c0 := newClocks()
			l := running(term, c0.now(), c0.now)
			defer l.End(nil)
			require.NoError(t, l.Err())
			c0.step(c.mono, c.wall)
			assert.ErrorIs(t, l.Err(), ErrSessionEnded)
			assert.True(t, closed(l.Done()), "Done is closed when Err has returned an error")
		})
	}
}

// No step is as long as the term, so the lease must add them up.
func TestNoStepOfTheWallClockHidesTimeThatWasRead(t *testing.T) {
	for name, steps := range map[string][]struct{ mono, wall time.Duration }{
		"set back, then asleep":  {{1, -term}, {0, term / 2}, {1, -term / 4}, {0, term / 2}},
		"asleep, then set back":  {{0, 3 * term / 4}, {1, -term}, {term / 4, term / 4}},
		"set forward, then back": {{1, 3 * term / 4}, {1, -3 * term / 4}, {term / 4, term / 4}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClocks()
			l := running(term, c.now(), c.now)
			defer l.End(nil)
			for _, s := range steps {
				require.NoError(t, l.Err())
				c.step(s.mono, s.wall)
			}
			require.ErrorIs(t, l.Err(), ErrSessionEnded)
		})
	}
}

func TestATremblingWallClockDoesNotAddUp(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	defer l.End(nil)
	for range 100 { // jitter within the tolerance must not add up
		c.step(0, tolerance/2)
		require.NoError(t, l.Err())
		c.step(0, -tolerance/2)
		require.NoError(t, l.Err())
	}
	c.step(0, -term)
	require.NoError(t, l.Err())
	c.step(term-1, term-1)
	require.NoError(t, l.Err())
	c.step(1, 1)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

// A reading taken before the clock was set back must not count as a step.
func TestALateReadingIsNoStepForward(t *testing.T) {
	c := newClocks()
	read, set := c.read, false
	c.read = func() (mono, wall time.Duration) {
		mono, wall = read()
		if !set {
			set = true
			c.step(1, -term)
			c.now()
		}
		return mono, wall
	}
	before := c.now()
	c.step(1, 1)
	require.EqualValues(t, 1, c.now().since(before))
}

func TestLeaseRunsUntilItsTermHasPassed(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	defer l.End(nil)
	c.step(term-1, term-1)
	require.NoError(t, l.Err())
	c.step(1, 1)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestRenewCountsFromTheSendingTime(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	defer l.End(nil)
	c.step(term/2, term/2)
	sent := l.Now()
	c.step(term/4, term/4)
	require.True(t, l.Renew(sent))
	c.step(3*term/4-1, 3*term/4-1)
	require.NoError(t, l.Err())
	c.step(1, 1)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestRenewWithAnEarlierInstantChangesNothing(t *testing.T) {
	c := newClocks()
	early := c.now()
	c.step(term/2, term/2)
	l := running(term, c.now(), c.now)
	defer l.End(nil)
	require.True(t, l.Renew(early))
	c.step(term/2, term/2)
	require.NoError(t, l.Err())
}

func TestRenewAfterTheWallClockWasSetBack(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	defer l.End(nil)
	c.step(term/2, -24*time.Hour)
	require.True(t, l.Renew(l.Now()))
	c.step(term-1, term-1)
	require.NoError(t, l.Err())
}

func TestCountFromAcceptsAnEarlierInstant(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	defer l.End(nil)
	strong := l.Now()
	c.step(term/2, term/2)
	require.True(t, l.Renew(l.Now()))
	require.ErrorIs(t, l.CountFrom(strong, term/2+1), ErrUnavailable, "too little would be left")
	c.step(term/4, term/4)
	require.NoError(t, l.Err(), "nothing was changed")
	require.NoError(t, l.CountFrom(strong, term/4))
	c.step(term/4, term/4)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
	require.ErrorIs(t, l.CountFrom(l.Now(), 0), ErrSessionEnded)
}

func TestDoneClosesInTimeAfterCountFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		strong := Now()
		time.Sleep(9 * time.Second) // leaves less than the timer's interval
		l := running(10*time.Second, Now(), Now)
		require.NoError(t, l.CountFrom(strong, 0))
		began := time.Now()
		<-l.Done()
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestErrorOfALeaseThatHasRunOut(t *testing.T) {
	c := newClocks()
	sent := c.now()
	l := running(8*time.Second, sent, c.now)
	c.step(5*time.Second, 5*time.Second)
	require.True(t, l.Renew(sent))
	c.step(3*time.Second, 3*time.Second)
	require.EqualError(t, l.Err(), "session ended: the lease ran out: no answer has renewed it for 3s, and the request that it counts from was sent 8s ago")
	require.ErrorIs(t, l.Err(), ErrExpired)
}

func TestALateReplyDoesNotReviveALease(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	defer l.End(nil)
	c.step(term-1, term-1)
	sent := l.Now()
	c.step(2, 2) // no method has noticed the end yet
	require.False(t, l.Renew(sent))
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
	require.False(t, l.Renew(l.Now()))
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestALeaseThatBeginsTooLateHasEnded(t *testing.T) {
	c := newClocks()
	sent := c.now()
	c.step(term, term)
	l := running(term, sent, c.now)
	require.True(t, closed(l.Done()))
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestOnlyTheFirstEndCounts(t *testing.T) {
	expired, later := errors.New("expired"), errors.New("later")
	l := running(term, Now(), Now)
	require.False(t, closed(l.Done()))
	l.End(expired)
	l.End(later)
	require.True(t, closed(l.Done()))
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
	require.ErrorIs(t, l.Err(), expired)
	require.NotErrorIs(t, l.Err(), later)
	require.NotErrorIs(t, l.Err(), ErrExpired)
}

func TestDoneClosesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(10*time.Second, Now(), Now)
		time.Sleep(6 * time.Second)
		require.True(t, l.Renew(l.Now()))
		began := time.Now()
		<-l.Done()
		assert.Equal(t, 10*time.Second, time.Since(began))
	})
}

func TestDoneClosesSoonAfterASleepOfTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(10*time.Second, Now(), Now)
		leasehook.Skew(l, time.Minute)
		began := time.Now()
		<-l.Done()
		assert.LessOrEqual(t, time.Since(began), 10*time.Second/4)
	})
}

func TestSkewConcernsOnlyRequestsSentBefore(t *testing.T) {
	l := running(term, Now(), Now)
	defer l.End(nil)
	leasehook.Skew(l, term/2)
	require.True(t, l.Renew(l.Now()))
	leasehook.Skew(l, term/2)
	require.NoError(t, l.Err())
	leasehook.Skew(l, term/2)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestAnEndedLeaseKeepsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(time.Second, Now(), Now)
		l.End(nil)
		assert.False(t, l.timer.Stop(), "the timer was stopped already")
	})
}

func TestLeaseIsSafeForManyGoroutines(t *testing.T) {
	l := running(term, Now(), Now)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				l.Renew(l.Now())
				_ = l.Err()
			}
		})
	}
	wg.Go(func() { l.End(nil) })
	wg.Wait()
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestErrReportsTheEndWhenDoneIsClosed(t *testing.T) {
	for range 20_000 {
		l := running(term, Now(), Now)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for !closed(l.Done()) {
				}
				done := l.Do(func() error { return nil })
				if l.Err() == nil || done == nil || l.Renew(l.Now()) {
					t.Error("Done is closed, and the lease runs")
				}
			})
		}
		l.End(nil)
		wg.Wait()
	}
}

func TestDoneIsClosedWhenErrReportsTheEnd(t *testing.T) {
	for range 20_000 {
		l := running(term, Now(), Now)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for l.Err() == nil {
				}
				if !closed(l.Done()) {
					t.Error("Err returns an error, and Done is open")
				}
			})
		}
		l.End(nil)
		wg.Wait()
	}
}

func TestOnRenewReportsWhatWasLeftBeforeTheRenewal(t *testing.T) {
	c := newClocks()
	l := newLease(2*term, term, c.now)
	defer l.End(nil)
	var left []time.Duration
	l.OnRenew(func(rest, of time.Duration) {
		require.NoError(t, l.Err(), "f may call the lease")
		assert.Equal(t, term, of)
		left = append(left, rest)
	})
	began := l.Now()
	require.True(t, l.Renew(began))
	assert.Empty(t, left, "the lease has begun, and was not renewed")

	c.step(term/4, term/4)
	sent := l.Now()
	c.step(term/2, term/2)
	require.True(t, l.Renew(sent))
	require.True(t, l.Renew(began)) // older than the last renewal
	c.step(term/4, term/4)
	require.True(t, l.Renew(l.Now()))
	assert.Equal(t, []time.Duration{term / 4, term / 4}, left)

	l.OnRenew(nil)
	c.step(1, 1)
	require.True(t, l.Renew(l.Now()))
	assert.Len(t, left, 2)
}
