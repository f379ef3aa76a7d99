package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func ExampleMarks_Do() {
	var marks fence.Marks
	write := func(token int64) error {
		return marks.Do("account/7", token, func() error {
			fmt.Println("written with token", token)
			return nil
		})
	}
	fmt.Println(write(34))
	fmt.Println(errors.Is(write(33), fence.ErrStale))
	// Output:
	// written with token 34
	// <nil>
	// true
}

func nothing() error { return nil }

func TestAStaleTokenIsNamed(t *testing.T) {
	var m fence.Marks
	require.NoError(t, m.Do("account/7", 34, nothing))
	err := m.Do("account/7", 33, func() error { return errors.New("called") })
	assert.ErrorIs(t, err, fence.ErrStale)
	assert.EqualError(t, err, `fence: stale token: "account/7" has seen token 34, which is greater than 33`)
	assert.Equal(t, err, m.Check("account/7", 33, nothing))
	assert.NoError(t, m.Check("account/7", 40, nothing))
	assert.NoError(t, m.Do("account/7", 34, nothing), "the token of a reader is not kept")
	assert.NoError(t, m.Do("account/8", 1, nothing))
}

func TestTheTokenStaysAfterAnErrorAndAPanic(t *testing.T) {
	var m fence.Marks
	broken := errors.New("broken")
	assert.Equal(t, broken, m.Do("r", 2, func() error { return broken }))
	assert.ErrorIs(t, m.Do("r", 1, nothing), fence.ErrStale)
	assert.Panics(t, func() { _ = m.Do("r", 3, func() error { panic(broken) }) })
	assert.ErrorIs(t, m.Do("r", 2, nothing), fence.ErrStale)
	assert.NoError(t, m.Do("r", 3, nothing))
}

func TestComparingAndTheFunctionAreOneStep(t *testing.T) {
	var m fence.Marks
	var inside, calls atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			_ = m.Do("r", 34, func() error {
				assert.EqualValues(t, 1, inside.Add(1), "two calls at once")
				runtime.Gosched()
				inside.Add(-1)
				calls.Add(1)
				return nil
			})
		})
		all.Go(func() {
			_ = m.Check("r", 34, func() error {
				before := calls.Load()
				for range 10 {
					runtime.Gosched()
				}
				assert.Equal(t, before, calls.Load(), "a writer during a reader")
				return nil
			})
		})
	}
	all.Wait()
	assert.EqualValues(t, 100, calls.Load())
	assert.NoError(t, m.Do("r", 34, func() error { return m.Do("other", 1, nothing) }), "resources do not block each other")
	assert.NoError(t, m.Check("r", 35, func() error { return m.Check("r", 35, nothing) }), "readers run together")
}

var badInput = []struct {
	resource string
	token    int64
	says     string
}{
	{"r", 0, `fence: invalid: token 0 of "r" is not greater than zero`},
	{"r", -3, `fence: invalid: token -3 of "r" is not greater than zero`},
	{"r", math.MinInt64, `fence: invalid: token -9223372036854775808 of "r" is not greater than zero`},
	{"", 1, "fence: invalid: the resource has no name"},
	{strings.Repeat("x", 513), 1, "fence: invalid: the name of a resource has 513 bytes, more than 512"},
	{"a\x00", 1, `fence: invalid: resource "a\x00" is not UTF-8 without NUL`},
	{"\xff", 1, `fence: invalid: resource "\xff" is not UTF-8 without NUL`},
}

func TestBadInputIsRefused(t *testing.T) {
	var m fence.Marks
	var table fence.Table
	for _, bad := range badInput {
		for _, err := range []error{
			m.Do(bad.resource, bad.token, nothing),
			m.Check(bad.resource, bad.token, nothing),
			table.Raise(t.Context(), nil, bad.resource, bad.token),
			table.Check(t.Context(), nil, bad.resource, bad.token),
		} {
			assert.ErrorIs(t, err, fence.ErrInvalid)
			assert.EqualError(t, err, bad.says)
		}
	}
	assert.ErrorIs(t, table.Add(t.Context(), nil, ""), fence.ErrInvalid)
	assert.NoError(t, m.Do(strings.Repeat("x", 512), math.MaxInt64, nothing))
}

func TestTheTableIsChecked(t *testing.T) {
	for _, name := range []string{"a b", "a;", "1a", "a.b.c", ".a", "a.", `"a"`, "é", "a%", strings.Repeat("a", 64)} {
		table := fence.Table{Name: name}
		for _, err := range []error{
			table.Add(t.Context(), nil, "r"), table.Raise(t.Context(), nil, "r", 1), table.Check(t.Context(), nil, "r", 1),
		} {
			assert.ErrorIs(t, err, fence.ErrInvalid)
			assert.ErrorContains(t, err, fmt.Sprintf("%q is not the name of a table", name))
		}
	}
	assert.ErrorContains(t, fence.Table{Epoch: -1}.Check(t.Context(), nil, "r", 1), "epoch -1 is below zero")
}

func TestTokensOfAMajorityAreNeeded(t *testing.T) {
	for _, tokens := range [][]int64{nil, {0}, {1, 0}, {1, 0, 0}, {1, 2, 0, 0}} {
		assert.ErrorContains(t, fence.Table{}.RaiseAll(t.Context(), nil, "r", tokens), "are no majority")
	}
	assert.ErrorContains(t, fence.Table{}.RaiseAll(t.Context(), nil, "r", []int64{-1, -2, 0}), `token -1 of "r#0"`)
}

func TestMarksOfAMajority(t *testing.T) {
	var m fence.Marks
	calls := 0
	write := func(tokens ...int64) error {
		return m.DoAll("r", tokens, func() error { calls++; return nil })
	}
	assert.NoError(t, write(5, 900, 0))
	assert.NoError(t, write(5, 900, 0), "a second write")
	assert.NoError(t, write(0, 901, 3), "the maximum and the sum may fall")
	assert.Equal(t, 3, calls)
	assert.ErrorIs(t, write(5, 900, 0), fence.ErrStale, "901 is at the store that both have held")
	assert.ErrorIs(t, m.Do(fence.Part("r", 2), 2, nothing), fence.ErrStale)
	assert.NoError(t, write(6, 0, 3))
	assert.ErrorContains(t, write(6, 0, 0), "are no majority")
	assert.ErrorIs(t, write(90, -1, 0), fence.ErrInvalid)
	assert.NoError(t, write(6, 0, 3), "the invalid call has changed nothing")
	assert.Equal(t, 5, calls)
}

func TestTheHeaderCarriesAnyResource(t *testing.T) {
	for _, resource := range []string{"", "account/7", `a "b"; c=\`, "größe", "line\nbreak", " "} {
		h := make(http.Header)
		fence.SetToken(h, resource, math.MaxInt64)
		got, token, err := fence.Token(h)
		require.NoError(t, err, h)
		assert.Equal(t, resource, got)
		assert.EqualValues(t, math.MaxInt64, token)
	}
	h := make(http.Header)
	fence.SetToken(h, "account/7", 34)
	assert.Equal(t, http.Header{"Dlock-Token": {`34; resource="account/7"`}}, h)
}

func send(h http.Handler, method, path, body string, headers ...string) int {
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	r.Header["Dlock-Token"] = headers
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func byPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

func TestTheHandlerAnswers(t *testing.T) {
	var seen string
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		seen = string(body)
	})
	h := (&fence.Marks{MaxBody: 10}).Handler(next, byPath)
	for i, step := range []struct {
		method, path string
		headers      []string
		status       int
	}{
		{"PUT", "/7", []string{"33"}, 200},
		{"PUT", "/7", []string{`34; resource="7"`}, 200},
		{"PUT", "/7", []string{"33"}, 412},
		{"GET", "/7", []string{"33"}, 412},
		{"GET", "/7", []string{"99"}, 200},
		{"HEAD", "/7", []string{"99"}, 200},
		{"OPTIONS", "/7", []string{"99"}, 200},
		{"DELETE", "/7", []string{"34"}, 200},
		{"PUT", "/8", []string{"33"}, 200},
		{"PUT", "/8", []string{"40; resource=7"}, 400},
		{"PUT", "/", []string{"40"}, 400},
		{"PUT", "/7", nil, 428},
		{"PUT", "/7", []string{""}, 400},
		{"PUT", "/7", []string{"0"}, 400},
		{"PUT", "/7", []string{"-1"}, 400},
		{"PUT", "/7", []string{"+35"}, 400},
		{"PUT", "/7", []string{"35x"}, 400},
		{"PUT", "/7", []string{"35, 36"}, 400},
		{"PUT", "/7", []string{"35", "36"}, 400},
		{"PUT", "/7", []string{"9223372036854775808"}, 400},
		{"PUT", "/7", []string{"35; resource=7; resource=8"}, 400},
		{"PUT", "/7", []string{"35; Resource*=iso-8859-1''8"}, 400},
		{"PUT", "/7", []string{"35; a=b; resource*0*=8"}, 400},
		{"PUT", "/7", []string{`35; resource=""`}, 400},
		{"POST", "/7", []string{"35"}, 200},
		{"POST", "/7", []string{"34"}, 412},
		{"PATCH", "/7", []string{"34"}, 412},
	} {
		body := fmt.Sprint(i)
		assert.Equal(t, step.status, send(h, step.method, step.path, body, step.headers...), "step %d", i)
		assert.Equal(t, step.status == http.StatusOK, seen == body, "step %d", i)
	}
	assert.Equal(t, 413, send(h, "PUT", "/7", "12345678901", "36"))
	assert.Equal(t, 200, send(h, "PUT", "/7", "1234567890", "35"), "the token of a refused request is not kept")
}

func TestTheHeaderNamesTheResource(t *testing.T) {
	h := new(fence.Marks).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	assert.Equal(t, 200, send(h, "PUT", "/x", "", "34; resource=a"))
	assert.Equal(t, 412, send(h, "PUT", "/y", "", "33; resource=a"))
	assert.Equal(t, 200, send(h, "PUT", "/x", "", "33; resource=b"))
	assert.Equal(t, 400, send(h, "PUT", "/x", "", "34"))
	assert.Equal(t, 413, send(h, "PUT", "/x", strings.Repeat("x", 1<<20+1), "34; resource=a"))
}
