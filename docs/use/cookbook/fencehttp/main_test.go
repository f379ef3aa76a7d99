package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	os.Exit(leakcheck.After(code))
}

func Example() {
	main()
	// Output: tea is 3.20
}

func TestALateHolderIsTold(t *testing.T) {
	server := httptest.NewServer(service(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	store := memdriver.New()
	one, two := dlock.NewClient(store), dlock.NewClient(store)
	defer one.Close()
	defer two.Close()

	const name = "price/tea"
	late, err := one.RWMutex(name).Lock(t.Context())
	require.NoError(t, err)
	store.Faults().ExpireAll()
	require.NoError(t, two.RWMutex(name).WithLock(t.Context(), func(ctx context.Context, lock *dlock.Lock) error {
		return put(ctx, name, lock.Token(), server.URL+"/price/tea", "new")
	}))
	assert.ErrorIs(t, put(t.Context(), name, late.Token(), server.URL+"/price/tea", "late"), fence.ErrStale)
	assert.ErrorContains(t, put(t.Context(), name, late.Token(), server.URL+"/price/milk", ""), "400 Bad Request", "the lock of another price")
}
