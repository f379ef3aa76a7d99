package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
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

// send sends a request with these tokens and returns its status.
func send(h http.Handler, path, body string, tokens ...string) int {
	r := httptest.NewRequest(http.MethodPut, path, strings.NewReader(body))
	for _, token := range tokens {
		r.Header.Add("Dlock-Token", token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestTokensAreCompared(t *testing.T) {
	var last string
	h := new(fence).handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		last = string(body)
	}))
	for i, step := range []struct {
		path   string
		tokens []string
		status int
	}{
		{"/7", []string{"33"}, http.StatusOK},
		{"/7", []string{"34"}, http.StatusOK},
		{"/7", []string{"33"}, http.StatusPreconditionFailed},
		{"/7", []string{"34"}, http.StatusOK},
		{"/8", []string{"33"}, http.StatusOK},
		{"/7", nil, http.StatusPreconditionRequired},
		{"/7", []string{""}, http.StatusBadRequest},
		{"/7", []string{"0"}, http.StatusBadRequest},
		{"/7", []string{"35x"}, http.StatusBadRequest},
		{"/7", []string{"35", "36"}, http.StatusBadRequest},
		{"/7", []string{"9223372036854775808"}, http.StatusBadRequest},
		{"/7", []string{"35"}, http.StatusOK},
	} {
		body := strconv.Itoa(i)
		assert.Equal(t, step.status, send(h, step.path, body, step.tokens...), "step %d", i)
		assert.Equal(t, step.status == http.StatusOK, last == body, "step %d", i)
	}
	assert.Equal(t, http.StatusBadRequest, send(h, "/7", strings.Repeat("x", 1<<20+1), "36"))
}

func TestTheHandlerAndTheComparisonAreOneStep(t *testing.T) {
	var inside, handled atomic.Int32
	h := new(fence).handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		assert.EqualValues(t, 1, inside.Add(1), "two requests at once")
		for range 10 {
			runtime.Gosched()
		}
		inside.Add(-1)
		handled.Add(1)
	}))
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { send(h, "/7", "", "34") })
	}
	all.Wait()
	assert.EqualValues(t, 100, handled.Load())
}

func TestOneResourceDoesNotBlockAnother(t *testing.T) {
	var h http.Handler
	h = new(fence).handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/7" {
			assert.Equal(t, http.StatusOK, send(h, "/8", "", "1"))
		}
	}))
	assert.Equal(t, http.StatusOK, send(h, "/7", "", "1"))
}

func TestAHandlerThatPanicsUnblocksItsResource(t *testing.T) {
	fails := true
	h := new(fence).handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if fails {
			panic(errors.New("a fault"))
		}
	}))
	assert.Panics(t, func() { send(h, "/7", "", "2") })
	fails = false
	assert.Equal(t, http.StatusPreconditionFailed, send(h, "/7", "", "1"))
	assert.Equal(t, http.StatusOK, send(h, "/7", "", "2"))
}

func TestALateHolderIsTold(t *testing.T) {
	server := httptest.NewServer(new(fence).handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	store := memdriver.New()
	one, two := dlock.NewClient(store), dlock.NewClient(store)
	defer one.Close()
	defer two.Close()

	late, err := one.RWMutex("price").Lock(t.Context())
	require.NoError(t, err)
	store.Faults().ExpireAll()
	require.NoError(t, two.RWMutex("price").WithLock(t.Context(), func(ctx context.Context) error {
		return put(ctx, dlock.FromContext(ctx), server.URL, "new")
	}))
	assert.ErrorIs(t, put(t.Context(), late, server.URL, "late"), errStale)
	assert.ErrorContains(t, put(t.Context(), nil, server.URL, ""), "400 Bad Request")
}
