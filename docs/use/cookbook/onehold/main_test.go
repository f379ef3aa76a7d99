package main

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func Example() {
	main()
	// Output: sales by token: map[1:100]
}

func shared(t *testing.T) (*memdriver.Store, *hold, *dlock.RWMutex) {
	store := memdriver.New()
	ours, theirs := dlock.NewClient(store), dlock.NewClient(store)
	t.Cleanup(func() {
		assert.NoError(t, ours.Close())
		assert.NoError(t, theirs.Close())
	})
	return store, share(ours.RWMutex("q")), theirs.RWMutex("q")
}

func nothing(context.Context, int64) error { return nil }

func TestTurnsOfOneHoldExcludeEachOtherAndSendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, h, _ := shared(t)
		inside := 0
		var workers sync.WaitGroup
		for range 50 {
			workers.Go(func() {
				assert.NoError(t, h.do(t.Context(), func(context.Context, int64) error {
					inside++
					assert.Equal(t, 1, inside)
					time.Sleep(time.Millisecond)
					inside--
					return nil
				}))
			})
		}
		workers.Wait()
		assert.EqualValues(t, 1, store.Stats().Requests[faults.OpCreate])
		h.close()
		assert.Zero(t, store.Stats().Nodes)
	})
}

func TestAnotherProcessGetsTheLockAfterTheCurrentTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, theirs := shared(t)
		var tokens []int64
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				for range 20 {
					assert.NoError(t, h.do(t.Context(), func(_ context.Context, token int64) error {
						tokens = append(tokens, token)
						time.Sleep(time.Second)
						return nil
					}))
				}
			})
		}
		time.Sleep(10*time.Second + time.Millisecond)
		began := time.Now()
		l, err := theirs.Lock(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(began), 4*time.Second, "turns that waited already come first")
		require.NoError(t, l.Unlock())
		workers.Wait()
		assert.Len(t, tokens, 60)
		assert.Less(t, tokens[0], l.Token())
		assert.Greater(t, tokens[59], l.Token())
		h.close()
	})
}

func TestAnIdleHoldIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, theirs := shared(t)
		require.NoError(t, h.do(t.Context(), nothing))
		require.NoError(t, theirs.WithLock(t.Context(), func(context.Context, *dlock.Lock) error { return nil }))
		require.NoError(t, h.do(t.Context(), nothing))
		h.close()
		h.close()
	})
}

func TestALossEndsTheTurnAndTheNextOneHasAGreaterToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, h, _ := shared(t)
		var lost int64
		err := h.do(t.Context(), func(ctx context.Context, token int64) error {
			lost = token
			store.Faults().PauseAll(time.Minute)
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, dlock.ErrLost)
		require.NoError(t, h.do(t.Context(), func(_ context.Context, token int64) error {
			assert.Greater(t, token, lost)
			return nil
		}))
		h.close()
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, theirs := shared(t)
		l, err := theirs.Lock(t.Context())
		require.NoError(t, err)
		for range 2 { // one for the lock, one for a turn
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				assert.ErrorIs(t, h.do(ctx, nothing), context.DeadlineExceeded)
			}()
		}
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Unlock())
		h.close()
	})
}
