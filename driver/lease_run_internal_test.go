package driver

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

	"github.com/dlock-go/dlock/internal/leasehook"
)

func counts() error { return nil }

var errNoProof = errors.New("the answer proves nothing")

func TestALeaseRunsOnlyFromTheFirstRequestThatCounts(t *testing.T) {
	c := newClocks()
	l := newLease(2*term, term, c.now)
	defer l.End(nil)
	c.step(10*term, 10*term)
	require.NoError(t, l.Err())
	require.Equal(t, errNoProof, l.Do(func() error { return errNoProof }))
	assert.False(t, closed(l.Done()))
	assert.Nil(t, l.timer)
	c.step(10*term, 10*term)
	require.NoError(t, l.Do(counts))
	c.step(term-1, term-1)
	require.NoError(t, l.Err())
	c.step(1, 1)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestALeaseBeginsAtTheSendingTime(t *testing.T) {
	c := newClocks()
	l := newLease(2*term, term, c.now)
	defer l.End(nil)
	require.NoError(t, l.Do(func() error {
		c.step(term/4, term/4) // the answer takes this long
		return nil
	}))
	c.step(3*term/4-1, 3*term/4-1)
	require.NoError(t, l.Err())
	c.step(1, 1)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestAFirstAnswerAfterTheTermEndsTheLease(t *testing.T) {
	c := newClocks()
	l := newLease(2*term, term, c.now)
	err := l.Do(func() error {
		c.step(term, term)
		return nil
	})
	require.ErrorIs(t, err, ErrSessionEnded)
	require.True(t, closed(l.Done()))
	require.False(t, l.Renew(l.Now()))
}

func TestCountFromBeginsALease(t *testing.T) {
	c := newClocks()
	l := newLease(2*term, term, c.now)
	defer l.End(nil)
	strong := l.Now()
	c.step(term/2, term/2)
	require.ErrorIs(t, l.CountFrom(strong, term/2+1), ErrUnavailable)
	require.Nil(t, l.timer, "nothing was changed")
	require.NoError(t, l.CountFrom(strong, term/2))
	c.step(term/2, term/2)
	require.EqualError(t, l.Err(), "session ended: the lease ran out: no answer has renewed it for 30m0s, and the request that it counts from was sent 1h0m0s ago")
}

func TestEndBeforeTheFirstRequest(t *testing.T) {
	l := NewLease(term, 0)
	l.End(nil)
	require.True(t, closed(l.Done()))
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
	require.Nil(t, l.timer)
	require.False(t, l.Renew(l.Now()))
	require.ErrorIs(t, l.CountFrom(l.Now(), 0), ErrSessionEnded)
	require.Nil(t, l.timer)
}

func TestMarginOfALease(t *testing.T) {
	assert.Equal(t, 3*time.Second, NewLease(4*time.Second, 0).Term())
	assert.Equal(t, 2500*time.Millisecond, NewLease(4*time.Second, 1500*time.Millisecond).Term())
}

func TestALeaseWithoutASafeTermHasEnded(t *testing.T) {
	for _, x := range []struct {
		timeout, margin time.Duration
		says            string
	}{
		{4 * time.Second, 4 * time.Second, "session ended: no lease is safe with a margin of 4s and a session timeout of 4s"},
		{4 * time.Second, 5 * time.Second, "session ended: no lease is safe with a margin of 5s and a session timeout of 4s"},
		{4 * time.Second, -1, "session ended: no lease is safe with a margin of -1ns and a session timeout of 4s"},
		{0, 0, "session ended: no lease is safe with a margin of 0s and a session timeout of 0s"},
		{-4 * time.Second, 0, "session ended: no lease is safe with a margin of -1s and a session timeout of -4s"},
	} {
		l := NewLease(x.timeout, x.margin)
		assert.EqualError(t, l.Err(), x.says)
		assert.True(t, closed(l.Done()))
		assert.False(t, l.Renew(l.Now()))
		l.Run(func(ctx context.Context) error { panic("not reached") })
	}
}

func TestDoCountsFromTheInstantBeforeTheCall(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	defer l.End(nil)
	c.step(term/2, term/2)
	require.NoError(t, l.Do(func() error {
		c.step(term/4, term/4)
		return nil
	}))
	c.step(3*term/4-1, 3*term/4-1)
	require.NoError(t, l.Err())
	c.step(1, 1)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestDoWithoutAProofRenewsNothing(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	c.step(term/2, term/2)
	require.Equal(t, errNoProof, l.Do(func() error { return errNoProof }))
	c.step(term/2-1, term/2-1)
	err := l.Do(func() error {
		c.step(1, 1)
		return errNoProof
	})
	require.ErrorIs(t, err, ErrSessionEnded)
}

// The caller of Connect has no session yet, so the error must not match
// ErrSessionEnded.
func TestBeginWithALateAnswerMayBeRepeated(t *testing.T) {
	c := newClocks()
	l := newLease(2*term, term, c.now)
	err := l.Begin(func() error {
		c.step(term, term)
		return nil
	})
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotErrorIs(t, err, ErrSessionEnded)
	require.ErrorContains(t, err, "the answer came too late")
	require.True(t, closed(l.Done()))
}

func TestBeginReturnsTheErrorOfTheRequest(t *testing.T) {
	c := newClocks()
	l := newLease(2*term, term, c.now)
	require.Equal(t, errNoProof, l.Begin(func() error { return errNoProof }))
	require.NoError(t, l.Begin(counts))
	l.End(nil)
	require.Equal(t, ErrSessionEnded, l.Begin(func() error { t.Error("a request was made"); return nil }))
}

func TestErrorOfALeaseHasTheTextOfTheLastFailure(t *testing.T) {
	refused := errors.New("connection refused")
	for name, x := range map[string]struct {
		before func(l *Lease)
		says   string
	}{
		"of a request":            {func(l *Lease) { _ = l.Do(func() error { return refused }) }, "ago; the last failure: connection refused"},
		"that the driver reports": {func(l *Lease) { l.Failed(errNoProof); l.Failed(refused) }, "ago; the last failure: connection refused"},
		"but none before an answer": {func(l *Lease) {
			l.Failed(refused)
			_ = l.Do(counts)
		}, "ago"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClocks()
			l := running(term, c.now(), c.now)
			x.before(l)
			c.step(term, term)
			require.Error(t, l.Err())
			require.Equal(t, x.says, l.Err().Error()[len(l.Err().Error())-len(x.says):])
			require.NotErrorIs(t, l.Err(), refused)
		})
	}
}

func TestErrorOfALeaseSaysThatHeartbeatsGotNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(6*time.Second, Now(), Now) // a term of 6s, a timeout of 12s
		<-run(l, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		assert.ErrorContains(t, l.Err(), "; the last failure: a heartbeat got no answer within 3s: context deadline exceeded")
	})
}

func TestDoMakesNoRequestAfterTheEnd(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	c.step(term, term)
	require.ErrorIs(t, l.Do(func() error { t.Error("a request was made"); return nil }), ErrSessionEnded)
	require.True(t, closed(l.Done()))
}

func TestAPanicInDoRenewsNothing(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	c.step(term-1, term-1)
	require.PanicsWithValue(t, "broken", func() { _ = l.Do(func() error { panic("broken") }) })
	c.step(1, 1)
	require.ErrorIs(t, l.Err(), ErrSessionEnded)
}

func TestContextEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(10*time.Second, Now(), Now)
		ctx, cancel := l.Context()
		defer cancel()
		began := time.Now()
		<-ctx.Done()
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Equal(t, l.Err(), context.Cause(ctx))
		assert.ErrorIs(t, context.Cause(ctx), ErrSessionEnded)
		assert.Equal(t, context.Canceled, ctx.Err())
	})
}

func TestContextOfALeaseThatHasRunOutHasEnded(t *testing.T) {
	c := newClocks()
	l := running(term, c.now(), c.now)
	c.step(term, term)
	ctx, cancel := l.Context()
	defer cancel()
	require.ErrorIs(t, context.Cause(ctx), ErrSessionEnded)
}

func TestACancelledContextEndsAlone(t *testing.T) {
	l := running(term, Now(), Now)
	defer l.End(nil)
	ctx, cancel := l.Context()
	other, cancelOther := l.Context()
	defer cancelOther()
	cancel()
	require.Equal(t, context.Canceled, context.Cause(ctx))
	require.NoError(t, other.Err())
	require.NoError(t, l.Err())
}

func run(l *Lease, beat func(ctx context.Context) error) <-chan struct{} {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		l.Run(beat)
	}()
	return returned
}

func TestRunSendsAHeartbeatEveryEighthOfTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0)
		began := time.Now()
		sent := make(chan time.Duration, 100)
		<-run(l, func(context.Context) error {
			sent <- time.Since(began)
			if time.Since(began) > 3*time.Second {
				return errNoProof
			}
			return nil
		})
		assert.Equal(t, 9*time.Second, time.Since(began), "the third heartbeat was sent at 3s, and the term is 6s")
		require.Len(t, sent, 8)
		for i := range 8 {
			assert.Equal(t, time.Duration(i+1)*time.Second, <-sent)
		}
	})
}

func TestRunCountsFromTheSendingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0)
		began := time.Now()
		var answered atomic.Bool
		returned := run(l, func(context.Context) error {
			first := answered.CompareAndSwap(false, true)
			time.Sleep(1500 * time.Millisecond)
			if !first {
				return errNoProof
			}
			return nil
		})
		<-l.Done()
		assert.Equal(t, 7*time.Second, time.Since(began), "the first heartbeat was sent at 1s, and the term is 6s")
		<-returned
	})
}

func TestHeartbeatsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0)
		began := Now()
		returned := run(l, func(context.Context) error {
			time.Sleep(1900 * time.Millisecond) // the next heartbeat is sent after one second
			return nil
		})
		time.Sleep(time.Minute)
		assert.Equal(t, 58*time.Second, l.start().since(began), "the sending time of the newest heartbeat with an answer")
		l.End(nil)
		<-returned
	})
}

func TestAHeartbeatHasAQuarterOfTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0)
		lasted := make(chan time.Duration, 100)
		returned := run(l, func(ctx context.Context) error {
			began := time.Now()
			<-ctx.Done()
			if context.Cause(ctx) == context.DeadlineExceeded {
				lasted <- time.Since(began)
			}
			return errNoProof
		})
		assert.Equal(t, 2*time.Second, <-lasted)
		l.End(nil)
		<-returned
	})
}

func TestTheEndOfTheLeaseEndsTheHeartbeatsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0)
		causes := make(chan error, 1)
		returned := run(l, func(ctx context.Context) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			time.Sleep(time.Second) // the answer comes after the lease has ended
			return nil
		})
		time.Sleep(1500 * time.Millisecond)
		l.End(nil)
		synctest.Wait()
		assert.Equal(t, ErrSessionEnded, <-causes)
		assert.False(t, closed(returned), "a heartbeat has not returned")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, closed(returned))
		assert.ErrorIs(t, l.Err(), ErrSessionEnded)
	})
}

func TestALeaseThatRunsOutEndsTheHeartbeatsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 5500*time.Millisecond)
		require.True(t, l.Renew(l.Now()))
		causes := make(chan error, 100)
		<-run(l, func(ctx context.Context) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return errNoProof
		})
		require.Len(t, causes, 2)
		require.ErrorContains(t, l.Err(), "the lease ran out")
		assert.Equal(t, l.Err(), <-causes)
		assert.Equal(t, l.Err(), <-causes)
	})
}

func TestAtMostEightHeartbeatsAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0) // never begins, because every heartbeat fails
		free := make(chan struct{})
		var begun atomic.Int64
		returned := run(l, func(context.Context) error {
			begun.Add(1)
			<-free
			return errNoProof
		})
		time.Sleep(time.Hour + time.Millisecond)
		assert.EqualValues(t, 8, begun.Load())
		free <- struct{}{}
		synctest.Wait()
		assert.EqualValues(t, 8, begun.Load(), "Run makes up for missed heartbeats")
		time.Sleep(time.Minute)
		assert.EqualValues(t, 9, begun.Load(), "one heartbeat has returned, and one has begun")
		l.End(nil)
		close(free)
		<-returned
	})
}

func TestAHeartbeatThatExitsItsGoroutineIsNoLongerInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0)
		var begun atomic.Int64
		returned := run(l, func(context.Context) error {
			begun.Add(1)
			runtime.Goexit() // ends this goroutine, as t.FailNow does
			return nil
		})
		time.Sleep(time.Minute + time.Millisecond)
		assert.EqualValues(t, 60, begun.Load())
		assert.False(t, l.begun.Load(), "the heartbeat has renewed the lease")
		l.End(nil)
		<-returned
	})
}

func TestAHeartbeatMayEndTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0)
		expired := errors.New("expired")
		<-run(l, func(ctx context.Context) error {
			l.End(expired)
			return nil
		})
		assert.ErrorIs(t, l.Err(), expired)
	})
}

func TestNoHeartbeatIsSentAfterAPauseThatEndedTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := running(8*time.Second, Now(), Now) // Run will send the first heartbeat after 2s
		leasehook.Skew(l, time.Minute)          // ends the lease before its timer fires
		<-run(l, func(context.Context) error {
			t.Error("a heartbeat was sent")
			return nil
		})
		assert.ErrorIs(t, l.Err(), ErrSessionEnded)
	})
}

func TestManyRequestsBeginALeaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(8*time.Second, 0)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				_ = l.Do(func() error { time.Sleep(time.Duration(10-i) * 10 * time.Millisecond); return nil })
			})
		}
		wg.Wait()
		<-l.Done()
		assert.Equal(t, 6*time.Second+7*time.Millisecond, time.Since(began), "the request that was sent last was sent at 7ms")
	})
}
