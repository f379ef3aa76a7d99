package main

import (
	"context"
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
		locks = append(locks, client.RWMutex("once/report"))
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
		assert.Equal(t, []time.Time{begin, begin.Add(period), begin.Add(2 * period)}, ticks)
	})
}

func TestAnotherMachineRunsWhatTheFirstHasNotFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := machines(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		began := make(chan struct{})
		go run(ctx, m[0], func(ctx context.Context, _ time.Time) error {
			close(began)
			<-ctx.Done() // the machine stops in the middle
			return ctx.Err()
		})
		<-began
		later, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		time.AfterFunc(time.Second, cancel)
		runs := 0
		run(later, m[1], func(context.Context, time.Time) error { runs++; return nil })
		assert.Equal(t, 1, runs)
	})
}

func TestARunThatFailsIsTriedAgainInItsPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), period/2)
		defer cancel()
		runs := 0
		run(ctx, machines(t, 1)[0], func(context.Context, time.Time) error {
			if runs++; runs == 1 {
				return context.DeadlineExceeded
			}
			return nil
		})
		assert.Equal(t, 2, runs)
	})
}

func TestTheProgramEndsOnSIGTERM(t *testing.T) {
	ours := make(chan os.Signal, 1)
	signal.Notify(ours, syscall.SIGTERM) // or a signal outside main kills the test
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
