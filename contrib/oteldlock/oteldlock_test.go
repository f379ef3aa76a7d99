package oteldlock_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/oteldlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

var bg = context.Background()

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(leakcheck.After(m.Run()))
}

// world is an in-memory store in virtual time, with the telemetry recorded
// about its clients.
type world struct {
	*testing.T
	*memdriver.Store
	reader  *metric.ManualReader
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
	trace   *recipes.Trace
}

func inWorld(t *testing.T, f func(w *world), opts ...oteldlock.Option) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, Store: memdriver.New(), reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		w.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans))
		var err error
		w.trace, err = oteldlock.New(append(opts,
			oteldlock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(w.reader))),
			oteldlock.WithTracerProvider(w.tracers))...)
		require.NoError(t, err)
		f(w)
	})
}

func (w *world) client(opts ...dlock.Option) *dlock.Client {
	c := dlock.NewClient(w.Store, append(opts, dlock.WithTrace(w.trace))...)
	w.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) lock(ctx context.Context, m *dlock.RWMutex) *dlock.Lock {
	w.Helper()
	l, err := m.Lock(ctx)
	require.NoError(w, err)
	return l
}

// figures maps a metric's name and attribute values to its sum or count.
func (w *world) figures() map[string]int {
	w.Helper()
	synctest.Wait()
	var all metricdata.ResourceMetrics
	require.NoError(w, w.reader.Collect(bg, &all))
	found := make(map[string]int)
	add := func(name string, of attribute.Set, value int) {
		for _, a := range of.ToSlice() {
			name += " " + a.Value.AsString()
		}
		found[name] = value
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, int(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, int(p.Count))
				}
			}
		}
	}
	return found
}

func TestEventsAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		other := dlock.NewClient(w.Store)
		defer other.Close()
		taken := w.lock(bg, other.RWMutex("taken"))
		client := w.client()
		_, err := client.RWMutex("taken").TryRLock(bg)
		require.ErrorIs(w, err, dlock.ErrLocked)
		_, err = client.RWMutex("taken", dlock.WithTimeout(time.Second)).Lock(bg)
		require.ErrorIs(w, err, dlock.ErrTimeout)
		ended, cancel := context.WithCancel(bg)
		cancel()
		_, err = client.RWMutex("taken").Lock(ended)
		require.ErrorIs(w, err, context.Canceled)
		_, err = client.RWMutex("taken", dlock.WithMaxQueue(1)).Lock(bg)
		require.ErrorIs(w, err, dlock.ErrQueueFull)
		_, err = client.RWMutex("//").Lock(bg)
		require.ErrorIs(w, err, dlock.ErrBadName)
		require.NoError(w, taken.Unlock())
		lost := w.lock(bg, client.RWMutex("a"))
		w.Faults().ExpireAll()
		<-lost.Lost()
		require.ErrorIs(w, lost.Unlock(), dlock.ErrLost)
		held := w.lock(bg, client.RWMutex("b"))
		failed := w.lock(bg, client.RWMutex("c"))
		up := w.Faults().Down()
		require.ErrorIs(w, failed.Unlock(), dlock.ErrUnlock)
		up()
		w.trace.Heartbeat(bg, recipes.HeartbeatInfo{Left: time.Second, Term: 4 * time.Second})
		w.trace.Retrying(ended, recipes.RetryingInfo{Recipe: "lock"})
		figures := w.figures()
		assert.Positive(w, figures["dlock.lease.left"])
		delete(figures, "dlock.lease.left")
		assert.Equal(w, map[string]int{
			"dlock.wait.duration exclusive granted lock":    3,
			"dlock.wait.duration exclusive timeout lock":    1,
			"dlock.wait.duration exclusive canceled lock":   1,
			"dlock.wait.duration exclusive queue_full lock": 1,
			"dlock.wait.duration exclusive error lock":      1,
			"dlock.wait.duration shared locked lock":        1,
			"dlock.hold.duration exclusive lock":            2,
			"dlock.held exclusive lock":                     1,
			"dlock.waiting exclusive lock":                  0,
			"dlock.waiting shared lock":                     0,
			"dlock.timeouts exclusive lock":                 1,
			"dlock.losses exclusive session_ended lock":     1,
			"dlock.unlock.errors exclusive lock":            1,
			"dlock.retries lock":                            1,
			"dlock.connects ok":                             2,
			"dlock.session.ends lost":                       1,
		}, figures)
		require.NoError(w, held.Unlock())
		require.NoError(w, client.Close())
		assert.Equal(w, 1, w.figures()["dlock.session.ends closed"])
	})
}

func TestGaugesAreZeroAfterwards(t *testing.T) {
	inWorld(t, func(w *world) {
		other := dlock.NewClient(w.Store)
		defer other.Close()
		taken := w.lock(bg, other.RWMutex("a"))
		client := w.client()
		waiting := make(chan *dlock.Lock)
		go func() { waiting <- w.lock(bg, client.RWMutex("a")) }()
		assert.Equal(w, 1, w.figures()["dlock.waiting exclusive lock"])
		require.NoError(w, taken.Unlock())
		held := <-waiting
		assert.Equal(w, 1, w.figures()["dlock.held exclusive lock"])
		require.NoError(w, held.Downgrade(bg))
		require.NoError(w, held.Unlock())
		held = w.lock(bg, client.RWMutex("a"))
		require.NoError(w, held.Downgrade(bg))
		w.Faults().ExpireAll()
		<-held.Lost()
		require.ErrorIs(w, held.Unlock(), dlock.ErrLost)
		require.NoError(w, client.Close())
		figures := w.figures()
		for _, gauge := range []string{"held exclusive lock", "held shared lock", "waiting exclusive lock"} {
			assert.Zero(w, figures["dlock."+gauge], gauge)
		}
	})
}

func TestAWaitAndAHoldAreSpansOfTheCaller(t *testing.T) {
	inWorld(t, func(w *world) {
		client := w.client()
		m := client.RWMutex("stock/42")
		require.NoError(w, w.lock(bg, m).Unlock())
		assert.Empty(w, w.spans.Ended(), "of a call without a span")

		ctx, parent := w.tracers.Tracer("test").Start(bg, "request")
		first := w.lock(ctx, m)
		time.Sleep(time.Second)
		waited := make(chan *dlock.Lock)
		go func() { waited <- w.lock(ctx, m) }()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		require.NoError(w, first.Unlock())
		second := <-waited
		limited, cancel := context.WithTimeout(dlock.WithoutReentry(ctx), 3*time.Second)
		defer cancel()
		_, err := m.RLock(limited)
		require.ErrorIs(w, err, dlock.ErrTimeout)
		w.Faults().ExpireAll()
		<-second.Lost()
		require.ErrorIs(w, second.Unlock(), dlock.ErrLost)
		parent.End()
		synctest.Wait()

		type span struct {
			name, status, text string
			took               time.Duration
		}
		var got []span
		for _, s := range w.spans.Ended() {
			if s.Name() == "request" {
				continue
			}
			assert.Equal(w, parent.SpanContext().SpanID(), s.Parent().SpanID())
			var text []string
			for _, a := range s.Attributes() {
				text = append(text, string(a.Key)+"="+a.Value.String())
			}
			got = append(got, span{s.Name(), s.Status().Code.String(), strings.Join(text, " "), s.EndTime().Sub(s.StartTime())})
			assert.NotContains(w, s.Status().Description, "stock")
		}
		ok, failed := codes.Unset.String(), codes.Error.String()
		assert.ElementsMatch(w, []span{
			{"dlock wait", ok, "dlock.mode=exclusive dlock.recipe=lock dlock.outcome=granted dlock.token=2", 0},
			{"dlock hold", ok, "dlock.mode=exclusive dlock.recipe=lock", 3 * time.Second},
			{"dlock wait", ok, "dlock.mode=exclusive dlock.recipe=lock dlock.outcome=granted dlock.token=3", 2 * time.Second},
			{"dlock wait", failed, "dlock.mode=shared dlock.recipe=lock dlock.outcome=timeout", 3 * time.Second},
			{"dlock hold", failed, "dlock.mode=exclusive dlock.recipe=lock", 3 * time.Second},
		}, got)
	})
}

func TestLockNamesAppearOnlyAsTheUsersFunctionMapsThem(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, parent := w.tracers.Tracer("test").Start(bg, "request")
		for _, name := range []string{"stock/41", "stock/42"} {
			require.NoError(w, w.lock(ctx, w.client().RWMutex(name)).Unlock())
		}
		parent.End()
		figures := w.figures()
		assert.Equal(w, 2, figures["dlock.hold.duration stock\uFFFD exclusive lock"], figures)
		for _, s := range w.spans.Ended() {
			if s.Name() != "request" {
				assert.Contains(w, s.Attributes(), attribute.String("dlock.lock", "stock\uFFFD"))
			}
		}
	}, oteldlock.WithLockLabel(func(lock string) string {
		kind, _, _ := strings.Cut(lock, "/")
		return kind + "\xff" // not valid UTF-8
	}))
}

func TestTheSmallestLeaseLeftIsTheMinimum(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, left := range []time.Duration{3, 1, 2} {
			w.trace.Heartbeat(bg, recipes.HeartbeatInfo{Left: left * time.Second, Term: 4 * time.Second})
		}
		var all metricdata.ResourceMetrics
		require.NoError(w, w.reader.Collect(bg, &all))
		point := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints[0]
		least, _ := point.Min.Value()
		assert.InDelta(w, .25, least, 0)
		assert.EqualValues(w, 3, point.Count)
	})
}
