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
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func Example() {
	main()
	// Output: map[alice:130 bob:70]
}

func newBank() *bank {
	return &bank{balances: map[string]int{"alice": 100, "bob": 100, "carol": 100}, tokens: make(map[string]int64)}
}

// Transfers that wait for each other fail when ctx ends, after an hour.
func TestTransfersInAllDirectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, accounts := memdriver.New(), newBank()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		names := []string{"alice", "bob", "carol"}
		var running sync.WaitGroup
		for i := range 6 {
			client := dlock.NewClient(store)
			running.Go(func() {
				defer client.Close()
				for k := range 20 {
					assert.NoError(t, transfer(ctx, client, accounts, names[(i+k)%3], names[(i+k+1+i%2)%3], 1+k))
				}
			})
		}
		running.Wait()
		sum := 0
		for _, balance := range accounts.balances {
			sum += balance
		}
		assert.Equal(t, 300, sum)
	})
}

func TestALateTransferChangesNothing(t *testing.T) {
	accounts := newBank()
	require.NoError(t, accounts.move(t.Context(), 10, stamp{"alice", 4}, stamp{"bob", 5}))
	require.ErrorIs(t, accounts.move(t.Context(), 10, stamp{"bob", 5}, stamp{"alice", 3}), errStale)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, accounts.move(ended, 10, stamp{"bob", 6}, stamp{"alice", 6}), context.Canceled)
	assert.Equal(t, map[string]int{"alice": 90, "bob": 110, "carol": 100}, accounts.balances)
}
