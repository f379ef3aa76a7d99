package calls_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/calls"
)

func TestCloseOfAGateEndsCallsAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate calls.Gate
		ctx, leave, open := gate.Enter(t.Context())
		require.True(t, open)
		background := false
		require.True(t, gate.Go(func() {
			time.Sleep(time.Hour)
			background = true
		}))
		var closed time.Duration
		began := time.Now()
		go func() {
			gate.Close()
			closed = time.Since(began)
			assert.True(t, background, "Close waits for goroutines")
		}()
		<-ctx.Done()
		assert.Zero(t, time.Since(began), "Close ends the ctx at once")
		assert.NoError(t, t.Context().Err())
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Zero(t, closed, "a call is in flight")
		leave()
		synctest.Wait()
		assert.Equal(t, 2*time.Hour, closed)
	})
}

func TestNothingBeginsAfterCloseOfAGate(t *testing.T) {
	var gate calls.Gate
	gate.Close()
	_, _, open := gate.Enter(t.Context())
	assert.False(t, open)
	assert.False(t, gate.Go(func() { t.Error("a goroutine began after Close") }))
	gate.Close()
}

func TestACallInAGateEndsWithItsCaller(t *testing.T) {
	var gate calls.Gate
	ctx, cancel := context.WithCancel(t.Context())
	inside, leave, open := gate.Enter(ctx)
	require.True(t, open)
	cancel()
	<-inside.Done()
	leave()
	other, leave, open := gate.Enter(t.Context())
	require.True(t, open)
	assert.NoError(t, other.Err(), "the end of one call's ctx ends no other call")
	leave()
	assert.Error(t, other.Err(), "leave ends the context that Enter returned")
	gate.Close()
}

func TestACallInAGateEndsAfterTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := calls.Gate{Limit: time.Second}
		defer gate.Close()
		slow, leaveSlow, open := gate.Enter(t.Context())
		require.True(t, open)
		defer leaveSlow()
		quick, leaveQuick, open := gate.Enter(t.Context())
		require.True(t, open)
		_, deadline := slow.Deadline()
		assert.False(t, deadline, "a deadline would be sent to the store")
		began := time.Now()
		time.Sleep(time.Second - 1)
		synctest.Wait()
		assert.NoError(t, slow.Err())
		leaveQuick()
		<-slow.Done()
		assert.Equal(t, time.Second, time.Since(began))
		assert.Equal(t, context.Canceled, slow.Err())
		assert.Equal(t, calls.ErrLimit, context.Cause(slow))
		time.Sleep(time.Hour)
		assert.Equal(t, context.Canceled, context.Cause(quick), "a call that has left in time has not met the limit")
	})
}

func TestAGateWithoutALimitEndsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate calls.Gate
		defer gate.Close()
		ctx, leave, open := gate.Enter(t.Context())
		require.True(t, open)
		defer leave()
		time.Sleep(1000 * time.Hour)
		synctest.Wait()
		assert.NoError(t, ctx.Err())
	})
}
