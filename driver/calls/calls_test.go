package calls_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/calls"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

var errStore = errors.New("store")

func unexpected(t *testing.T) func(int, error) {
	return func(int, error) { t.Error("the clean-up was called with a result that was not late") }
}

func TestCallReturnsTheResult(t *testing.T) {
	c := calls.NewGroup(1)
	v, err := calls.Do(t.Context(), c, func() (int, error) { return 7, errStore }, unexpected(t))
	assert.Equal(t, 7, v)
	assert.Equal(t, errStore, err)
	require.NoError(t, c.Wait(t.Context()))
}

func TestALateResultGoesToTheCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls.NewGroup(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		late := make(chan int, 2)
		v, err := calls.Do(ctx, c, func() (int, error) {
			time.Sleep(time.Minute)
			return 7, errStore
		}, func(v int, err error) {
			assert.Equal(t, errStore, err)
			late <- v
			time.Sleep(time.Minute)
		})
		assert.Equal(t, context.DeadlineExceeded, err)
		assert.Zero(t, v)
		assert.Equal(t, time.Second, time.Since(began))
		require.NoError(t, c.Wait(t.Context()))
		assert.Equal(t, 2*time.Minute, time.Since(began), "Wait waits for the clean-up")
		require.Len(t, late, 1)
		assert.Equal(t, 7, <-late)
	})
}

func TestALateResultWithoutACleanUpIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls.NewGroup(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := calls.Do(ctx, c, func() (int, error) {
			time.Sleep(time.Minute)
			return 7, nil
		}, nil)
		assert.Equal(t, context.DeadlineExceeded, err)
		require.NoError(t, c.Wait(t.Context()))
	})
}

func TestNoCallIsMadeForAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := calls.Do(ctx, calls.NewGroup(1), func() (int, error) {
		t.Error("a call was made")
		return 0, nil
	}, unexpected(t))
	require.Equal(t, context.Canceled, err)
}

func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls.NewGroup(3)
		var running atomic.Int64
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := calls.Do(ctx, c, func() (int, error) {
				assert.LessOrEqual(t, running.Add(1), int64(3))
				defer running.Add(-1)
				time.Sleep(time.Minute)
				return 0, nil
			}, nil)
			cancel()
			assert.Equal(t, context.DeadlineExceeded, err)
		}
		assert.EqualValues(t, 3, running.Load(), "more calls than the limit have begun")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, context.DeadlineExceeded, c.Wait(ctx))
		v, err := calls.Do(t.Context(), c, func() (int, error) { return 7, nil }, unexpected(t))
		assert.NoError(t, err, "a call has ended, so another one may begin")
		assert.Equal(t, 7, v)
		assert.NoError(t, c.Wait(t.Context()))
		assert.Zero(t, running.Load())
	})
}

// Each result must go either to the caller or to the clean-up function, even if
// the context ends just as the call returns.
func TestAResultGoesToTheCallerOrToTheCleanUp(t *testing.T) {
	c := calls.NewGroup(4)
	returned, late := 0, atomic.Int64{}
	const rounds = 2000
	for range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := calls.Do(ctx, c, func() (int, error) {
			cancel()
			return 7, nil
		}, func(int, error) { late.Add(1) }); err == nil {
			returned++
		}
	}
	require.NoError(t, c.Wait(t.Context()))
	assert.EqualValues(t, rounds, int64(returned)+late.Load())
}

func TestALimitBelowOneIsRefused(t *testing.T) {
	require.PanicsWithValue(t, "calls: NewGroup: the limit is less than 1", func() { calls.NewGroup(0) })
}
