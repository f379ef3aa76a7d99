package fencetest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

type marked struct {
	marks fence.Marks
	value string
}

func (r *marked) Write(_ context.Context, token int64, value string, pause func()) error {
	return r.marks.Do("r", token, func() error {
		pause()
		r.value = value
		return nil
	})
}

func (r *marked) Read(_ context.Context, token int64) (value string, err error) {
	err = r.marks.Check("r", token, func() error {
		value = r.value
		return nil
	})
	return value, err
}

type served struct {
	handler http.Handler
	value   string
	pauses  sync.Map // the pause functions of Writes, by request body
}

func newServed() *served {
	r := new(served)
	r.handler = new(fence.Marks).Handler(r, func(r *http.Request) string { return r.URL.Path })
	return r
}

func (r *served) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method == http.MethodGet {
		_, _ = io.WriteString(w, r.value)
		return
	}
	body, _ := io.ReadAll(request.Body)
	if pause, ok := r.pauses.Load(string(body)); ok {
		pause.(func())()
	}
	r.value = string(body)
}

func (r *served) send(method string, token int64, body string) (string, error) {
	request := httptest.NewRequest(method, "/r", strings.NewReader(body))
	fence.SetToken(request.Header, "/r", token)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, request)
	if w.Code != http.StatusOK {
		return "", errors.New(w.Body.String())
	}
	return w.Body.String(), nil
}

func (r *served) Write(_ context.Context, token int64, value string, pause func()) error {
	r.pauses.Store(value, pause)
	_, err := r.send(http.MethodPut, token, value)
	return err
}

func (r *served) Read(_ context.Context, token int64) (string, error) {
	return r.send(http.MethodGet, token, "")
}

func TestMarksPass(t *testing.T) {
	Options{Wait: 20 * time.Millisecond}.Run(t, func(*testing.T) Resource { return new(marked) })
}

func TestHandlerPasses(t *testing.T) {
	Options{Wait: 20 * time.Millisecond}.Run(t, func(*testing.T) Resource { return newServed() })
}

// flawed is a resource with a single fault, which a test case must find.
type flawed struct {
	fault string
	mu    sync.Mutex
	token int64
	value string
}

func (r *flawed) pass(token int64, keep bool) error {
	kept := r.token
	switch r.fault {
	case "tokens are float64":
		token, kept = int64(float64(token)), int64(float64(kept))
	case "tokens are uint32":
		token, kept = int64(uint32(token)), int64(uint32(kept))
	case "tokens are int32":
		token, kept = int64(int32(token)), int64(int32(kept))
	}
	if token < kept || token == kept && r.fault == "an equal token is refused" {
		return fence.ErrStale
	}
	if keep {
		r.token = token
	}
	return nil
}

func (r *flawed) Write(_ context.Context, token int64, value string, pause func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.pass(token, r.fault != "tokens are not kept"); err != nil {
		return err
	}
	switch r.fault {
	case "comparing and storing are two steps":
		r.mu.Unlock()
		pause()
		r.mu.Lock()
	case "no pause":
	default:
		pause()
	}
	r.value = value
	return nil
}

func (r *flawed) Read(_ context.Context, token int64) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == "readers are not checked" {
		return r.value, nil
	}
	return r.value, r.pass(token, r.fault == "tokens of readers are kept")
}

func (r *flawed) Restart(context.Context) error {
	if r.fault == "tokens are in memory" {
		r.token = 0
	}
	return nil
}

func TestFaultsAreFound(t *testing.T) {
	for fault, found := range map[string][]string{
		"":                                    nil,
		"tokens are not kept":                 {"stale writer", "reordered write", "reader", "downgrade", "restart", "large tokens"},
		"an equal token is refused":           {"stale writer", "equal token", "reordered write", "downgrade", "restart", "large tokens"},
		"comparing and storing are two steps": {"reordered write"},
		"no pause":                            {"reordered write"},
		"readers are not checked":             {"reader", "downgrade"},
		"tokens of readers are kept":          {"reader", "downgrade"},
		"tokens are in memory":                {"restart"},
		"tokens are float64":                  {"large tokens"},
		"tokens are uint32":                   {"large tokens"},
		"tokens are int32":                    {"large tokens"},
	} {
		t.Run(fault, func(t *testing.T) {
			var failed []string
			for _, c := range cases {
				if err := c.check(run{&flawed{fault: fault}, t.Context(), 20 * time.Millisecond}); err != nil {
					t.Log(c.name, err)
					failed = append(failed, c.name)
				}
			}
			assert.Equal(t, found, failed)
		})
	}
}

func TestRestartIsSkippedWithoutRestarter(t *testing.T) {
	assert.ErrorIs(t, restart(run{Resource: new(marked)}), errSkip)
}
