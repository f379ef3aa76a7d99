package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/majority"
	"github.com/dlock-go/dlock/memdriver"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func Example() {
	main()
	// Output: balance 50
}

func TestALateHolderIsRefused(t *testing.T) {
	stores := []*memdriver.Store{memdriver.New(), memdriver.New(), memdriver.New()}
	newMutex := func() *majority.Mutex {
		var clients []*dlock.Client
		for _, s := range stores {
			c := dlock.NewClient(s)
			t.Cleanup(func() { _ = c.Close() })
			clients = append(clients, c)
		}
		return &majority.Mutex{Name: "account/7", Clients: clients}
	}
	one, two := newMutex(), newMutex()
	late, err := one.Lock(t.Context())
	require.NoError(t, err)
	var a account
	stores[0].Faults().ExpireAll()
	require.NoError(t, late.Err())
	require.NoError(t, a.add(late.Tokens(), 1), "two stores still hold the lock")
	stores[1].Faults().ExpireAll()
	require.ErrorIs(t, late.Err(), dlock.ErrLost)
	require.ErrorIs(t, late.Unlock(), dlock.ErrLost)
	require.NoError(t, deposit(t.Context(), two, &a, 10))
	assert.ErrorIs(t, a.add(late.Tokens(), 100), fence.ErrStale)
	assert.Equal(t, 11, a.balance)
}
