package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func machines(t *testing.T, n int) (locks []*dlock.RWMutex) {
	store := memdriver.New()
	for range n {
		client := dlock.NewClient(store)
		t.Cleanup(func() { assert.NoError(t, client.Close()) })
		locks = append(locks, client.RWMutex("cron/report"))
	}
	return locks
}

func TestOneOfThreeMachinesRunsEachTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ticks []time.Time
		begin := time.Now().Truncate(period)
		ctx, cancel := context.WithTimeout(t.Context(), 2*period+period/2)
		defer cancel()
		var all sync.WaitGroup
		for _, m := range machines(t, 3) {
			all.Go(func() {
				run(ctx, m, func(_ context.Context, tick time.Time) error {
					mu.Lock()
					defer mu.Unlock()
					ticks = append(ticks, tick)
					return nil
				})
			})
		}
		all.Wait()
		require.Len(t, ticks, 2)
		for i, tick := range ticks {
			assert.Equal(t, begin.Add(time.Duration(i+1)*period), tick)
		}
	})
}

// counter returns a job that returns at once, and the number of its runs.
func counter() (count *int, f job) {
	count = new(int)
	return count, func(context.Context, time.Time) error { *count++; return nil }
}

func TestAClockThatIsBehindDoesNotRepeatTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := machines(t, 2)
		count, f := counter()
		var all sync.WaitGroup
		all.Go(func() { assert.NoError(t, once(t.Context(), m[0], time.Now(), f)) })
		time.Sleep(hold/2 - time.Second) // by now the clock of the second machine has reached the tick
		assert.ErrorIs(t, once(t.Context(), m[1], time.Now(), f), dlock.ErrLocked)
		all.Wait()
		assert.Equal(t, 1, *count)
	})
}

func TestAMachineThatIsLateStaysOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := machines(t, 2)
		count, f := counter()
		tick := time.Now()
		require.NoError(t, once(t.Context(), m[0], tick, f))
		assert.ErrorIs(t, once(t.Context(), m[1], tick, f), dlock.ErrTimeout)
		assert.Equal(t, 1, *count)
	})
}

func TestTheNextTickRunsAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := machines(t, 1)
		bad := errors.New("full")
		assert.ErrorIs(t, once(t.Context(), m[0], time.Now(), func(context.Context, time.Time) error { return bad }), bad)
		count, f := counter()
		assert.NoError(t, once(t.Context(), m[0], time.Now(), f))
		assert.Equal(t, 1, *count)
	})
}

func TestTheProgramEndsOnSIGTERM(t *testing.T) {
	ours := make(chan os.Signal, 1)
	signal.Notify(ours, syscall.SIGTERM) // until main listens, the signal must not end the test
	defer signal.Stop(ours)
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		main()
	}()
	require.Eventually(t, func() bool {
		require.NoError(t, self.Signal(syscall.SIGTERM))
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}, time.Minute, 10*time.Millisecond)
}
