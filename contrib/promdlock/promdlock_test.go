package promdlock_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/promdlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

var bg = context.Background()

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if scenario := os.Getenv(scenarioVariable); scenario != "" {
		runScenario(scenario)
		return
	}
	os.Exit(leakcheck.After(m.Run()))
}

func newTrace(t *testing.T, r prometheus.Registerer, opts ...promdlock.Option) *recipes.Trace {
	t.Helper()
	trace, err := promdlock.New(r, opts...)
	require.NoError(t, err)
	return trace
}

func lock(t *testing.T, m *dlock.RWMutex) *dlock.Lock {
	t.Helper()
	l, err := m.Lock(bg)
	require.NoError(t, err)
	return l
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	reply, err := http.Get(url)
	require.NoError(t, err)
	defer reply.Body.Close()
	require.Equal(t, http.StatusOK, reply.StatusCode)
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	return string(text)
}

func TestWhatTheStoreDoesNotAnswerIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, st := prometheus.NewPedanticRegistry(), memdriver.New()
		open := func() *dlock.Client { return dlock.NewClient(st, dlock.WithTrace(newTrace(t, registry))) }
		holder, other := open(), open()
		defer holder.Close()
		defer other.Close()
		held := lock(t, holder.RWMutex("a"))
		defer st.Faults().Down()()
		require.ErrorIs(t, held.Unlock(), dlock.ErrUnlock)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		require.ErrorIs(t, other.Ping(ctx), dlock.ErrUnavailable)
		page := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequestWithContext(bg, http.MethodGet, "/", nil))
		assert.Contains(t, page.Body.String(), `dlock_unlock_errors_total{mode="exclusive",recipe="lock"} 1`)
		assert.Regexp(t, `dlock_connects_total{outcome="error"} [1-9]`, page.Body.String())
	})
}

func TestAScrapeOfAnEndpoint(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	endpoint := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer endpoint.Close()
	defer http.DefaultClient.CloseIdleConnections()
	st := memdriver.New()
	trace := newTrace(t, registry)
	assert.Contains(t, scrape(t, endpoint.URL), "\ndlock_losses_total{mode=\"exclusive\",reason=\"removed\",recipe=\"lock\"} 0\n", "counters begin at zero")

	other := dlock.NewClient(st)
	defer other.Close()
	taken := lock(t, other.RWMutex("taken"))
	counted := make(chan string, 3) // gets each event once it is counted
	client := dlock.NewClient(st, dlock.WithTrace(trace), dlock.WithTrace(&recipes.Trace{
		Lost:         func(context.Context, recipes.LostInfo) { counted <- "lost" },
		SessionEnded: func(context.Context, recipes.SessionEndedInfo) { counted <- "ended" },
	}))
	_, err := client.RWMutex("taken").TryRLock(bg)
	require.ErrorIs(t, err, dlock.ErrLocked)
	_, err = client.RWMutex("taken", dlock.WithTimeout(time.Millisecond)).Lock(bg)
	require.ErrorIs(t, err, dlock.ErrTimeout)
	ended, cancel := context.WithCancel(bg)
	cancel()
	_, err = client.RWMutex("taken").Lock(ended)
	require.ErrorIs(t, err, context.Canceled)
	_, err = client.RWMutex("taken", dlock.WithMaxQueue(1)).Lock(bg)
	require.ErrorIs(t, err, dlock.ErrQueueFull)
	_, err = client.RWMutex("//").Lock(bg)
	require.ErrorIs(t, err, dlock.ErrBadName)
	require.NoError(t, taken.Unlock())
	lost := lock(t, client.RWMutex("a"))
	st.Faults().ExpireAll()
	<-lost.Lost()
	require.ErrorIs(t, lost.Unlock(), dlock.ErrLost)
	require.ElementsMatch(t, []string{"lost", "ended"}, []string{<-counted, <-counted})
	require.NoError(t, lock(t, client.RWMutex("a")).Unlock())
	held := lock(t, client.RWMutex("b"))
	trace.Heartbeat(bg, recipes.HeartbeatInfo{Left: 3 * time.Second, Term: 12 * time.Second})

	text := scrape(t, endpoint.URL)
	for _, line := range []string{
		`dlock_wait_seconds_count{mode="exclusive",outcome="granted",recipe="lock"} 3`,
		`dlock_wait_seconds_count{mode="exclusive",outcome="timeout",recipe="lock"} 1`,
		`dlock_wait_seconds_count{mode="exclusive",outcome="canceled",recipe="lock"} 1`,
		`dlock_wait_seconds_count{mode="exclusive",outcome="queue_full",recipe="lock"} 1`,
		`dlock_wait_seconds_count{mode="exclusive",outcome="error",recipe="lock"} 1`,
		`dlock_wait_seconds_count{mode="shared",outcome="locked",recipe="lock"} 1`,
		`dlock_hold_seconds_count{mode="exclusive",recipe="lock"} 2`,
		`dlock_held{mode="exclusive",recipe="lock"} 1`,
		`dlock_held{mode="shared",recipe="lock"} 0`,
		`dlock_waiting{mode="exclusive",recipe="lock"} 0`,
		`dlock_timeouts_total{mode="exclusive",recipe="lock"} 1`,
		`dlock_losses_total{mode="exclusive",reason="session_ended",recipe="lock"} 1`,
		`dlock_unlock_errors_total{mode="exclusive",recipe="lock"} 0`,
		`dlock_connects_total{outcome="ok"} 2`,
		`dlock_connects_total{outcome="error"} 0`,
		`dlock_session_ends_total{reason="lost"} 1`,
		`dlock_session_ends_total{reason="closed"} 0`,
		`dlock_lease_left_ratio_bucket{le="0.25"} 1`,
		`dlock_lease_left_ratio_bucket{le="0.2"} 0`,
	} {
		assert.True(t, strings.Contains(text, "\n"+line+"\n"), line)
	}
	require.NoError(t, held.Unlock())
	require.NoError(t, client.Close())
	<-counted
	assert.Contains(t, scrape(t, endpoint.URL), "\ndlock_session_ends_total{reason=\"closed\"} 1\n")
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestLockNamesAppearOnlyAsTheUsersFunctionMapsThem(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	trace := newTrace(t, registry, promdlock.WithLockLabel(func(lock string) string {
		kind, _, _ := strings.Cut(lock, "/")
		return kind + "\xff" // not valid UTF-8
	}))
	client := dlock.NewClient(memdriver.New(), dlock.WithTrace(trace))
	defer client.Close()
	for _, name := range []string{"stock/41", "stock/42", "orders/1"} {
		require.NoError(t, lock(t, client.RWMutex(name)).Unlock())
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader("# HELP dlock_held Locks that are held.\n# TYPE dlock_held gauge\n"+
		"dlock_held{lock=\"orders\uFFFD\",mode=\"exclusive\",recipe=\"lock\"} 0\ndlock_held{lock=\"stock\uFFFD\",mode=\"exclusive\",recipe=\"lock\"} 0\n"), "dlock_held"))
}

func TestTwoTracesOfOneRegistererAreAdded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"client": "c"}, registry)
	for range 2 {
		trace := newTrace(t, labelled)
		trace.Retrying(bg, recipes.RetryingInfo{Recipe: "lock"})
		trace.Heartbeat(bg, recipes.HeartbeatInfo{Left: 1, Term: 2})
	}
	count, err := testutil.GatherAndCount(registry, "dlock_retries_total", "dlock_lease_left_ratio")
	require.NoError(t, err)
	assert.Equal(t, 5, count)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`# HELP dlock_retries_total Retries of calls of Lock.
# TYPE dlock_retries_total counter
dlock_retries_total{client="c",recipe="election"} 0
dlock_retries_total{client="c",recipe="lock"} 2
dlock_retries_total{client="c",recipe="majority"} 0
dlock_retries_total{client="c",recipe="semaphore"} 0
`), "dlock_retries_total"))
}

func TestARegistererThatRefusesIsNamed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "dlock_held", Help: "of another package"}))
	_, err := promdlock.New(registry)
	require.ErrorContains(t, err, "promdlock: register dlock_held: ")
	_, err = promdlock.New(nil)
	require.EqualError(t, err, "promdlock: the registerer is nil")
}
