package main

import (
	"context"
	"os"
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

func Example() {
	main()
	// Output: sent 575633798 with token 1
}

func TestAPausedProcessSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		paused, other := dlock.NewClient(store), dlock.NewClient(store)
		defer paused.Close()
		defer other.Close()

		err := publish(t.Context(), paused, func() uint32 {
			store.Faults().PauseAll(time.Minute)
			assert.NoError(t, other.RWMutex("price").WithLock(t.Context(), func(context.Context, *dlock.Lock) error { return nil }))
			return 1
		}, func(uint32, int64) { t.Error("sent after the loss") })
		assert.ErrorIs(t, err, dlock.ErrLost)
	})
}

// Right after a pause, Err reports the loss, but the context has not ended yet.
func TestAContextEndsLaterThanErr(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		client := dlock.NewClient(store)
		defer client.Close()
		lock, err := client.RWMutex("price").Lock(t.Context())
		require.NoError(t, err)
		ctx := lock.Context(t.Context())

		store.Faults().PauseAll(time.Minute)
		assert.NoError(t, ctx.Err())
		assert.ErrorIs(t, lock.Err(), dlock.ErrLost)
		<-ctx.Done() // ends once timers fire again
		assert.ErrorIs(t, context.Cause(ctx), dlock.ErrLost)
		assert.ErrorIs(t, lock.Unlock(), dlock.ErrLost)
	})
}
