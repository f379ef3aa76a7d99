package oteldlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// Option configures the telemetry of New.
type Option func(*options)

type options struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	label   func(lock string) string // nil for no label
}

// WithMeterProvider sets the provider of metrics, by default the global one.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(o *options) { o.meters = p }
}

// WithTracerProvider sets the provider of spans, by default the global one.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *options) { o.tracers = p }
}

// WithLockLabel adds the attribute dlock.lock to all metrics and spans about
// locks. Its value is what f returns for the lock's name. Each value creates
// its own time series, so f should return few different values, such as the
// name's first part. f must always return the same value for a name, and may be
// called concurrently.
func WithLockLabel(f func(lock string) string) Option {
	return func(o *options) { o.label = f }
}

// New creates the instruments and returns the hooks that use them, to be passed
// to [dlock.WithTrace]. The error comes from the meter provider.
func New(opts ...Option) (*recipes.Trace, error) {
	o := options{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, option := range opts {
		option(&o)
	}
	t := &telemetry{options: o, tracer: o.tracers.Tracer(scope)}
	if err := t.create(o.meters.Meter(scope)); err != nil {
		return nil, fmt.Errorf("oteldlock: %w", err)
	}
	return t.trace(), nil
}

const scope = "github.com/dlock-go/dlock/contrib/oteldlock"

type telemetry struct {
	options
	tracer trace.Tracer

	waits, holds, left                 metric.Float64Histogram
	waiting, held                      metric.Int64UpDownCounter
	timeouts, losses, retries, unlocks metric.Int64Counter
	connects, sessionEnds              metric.Int64Counter
}

// seconds are histogram buckets. Hand-overs take about 1 ms, dead holders tens
// of seconds.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

var ratios = []float64{.05, .1, .15, .2, .25, .3, .4, .5, .6, .7, .8, .9}

func (t *telemetry) create(m metric.Meter) error {
	var failed error
	histogram := func(name, unit, text string, buckets []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(buckets...))
		failed = errors.Join(failed, err)
		return h
	}
	gauge := func(name, unit, text string) metric.Int64UpDownCounter {
		g, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		failed = errors.Join(failed, err)
		return g
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		failed = errors.Join(failed, err)
		return c
	}
	t.waits = histogram("dlock.wait.duration", "s", "Time from the call of Lock to its return.", seconds)
	t.holds = histogram("dlock.hold.duration", "s", "Time from the grant of a lock to its release or loss.", seconds)
	t.waiting = gauge("dlock.waiting", "{call}", "Calls of Lock that have not returned.")
	t.held = gauge("dlock.held", "{lock}", "Locks that are held.")
	t.timeouts = counter("dlock.timeouts", "{call}", "Calls of Lock whose time limit has passed.")
	t.losses = counter("dlock.losses", "{lock}", "Locks lost while they were held.")
	t.retries = counter("dlock.retries", "{retry}", "Retries of calls of Lock.")
	t.unlocks = counter("dlock.unlock.errors", "{lock}", "Releases whose node stayed in the store.")
	t.connects = counter("dlock.connects", "{attempt}", "Attempts to connect to the store.")
	t.sessionEnds = counter("dlock.session.ends", "{session}", "Sessions that have ended.")
	t.left = histogram("dlock.lease.left", "1", "What heartbeats left of the lease, as a share of its term.", ratios)
	return failed
}

const (
	modeKey    = attribute.Key("dlock.mode")
	recipeKey  = attribute.Key("dlock.recipe")
	outcomeKey = attribute.Key("dlock.outcome")
	reasonKey  = attribute.Key("dlock.reason")
	lockKey    = attribute.Key("dlock.lock")
	tokenKey   = attribute.Key("dlock.token")
)

func (t *telemetry) attributes(recipe, lock string, all ...attribute.KeyValue) []attribute.KeyValue {
	all = append(all, recipeKey.String(recipe))
	if t.label != nil {
		all = append(all, lockKey.String(strings.ToValidUTF8(t.label(lock), "\uFFFD")))
	}
	return all
}

func (t *telemetry) trace() *recipes.Trace {
	return &recipes.Trace{
		Started: func(ctx context.Context, i recipes.StartedInfo) {
			t.waiting.Add(ctx, 1, with(t.attributes(i.Recipe, i.Lock, mode(i.Mode))))
		},
		Granted: func(ctx context.Context, i recipes.GrantedInfo) {
			attrs := t.attributes(i.Recipe, i.Lock, mode(i.Mode))
			t.waiting.Add(ctx, -1, with(attrs))
			t.held.Add(ctx, 1, with(attrs))
			attrs = append(attrs, outcomeKey.String("granted"))
			t.waits.Record(ctx, i.Waited.Seconds(), with(attrs))
			t.span(ctx, "dlock wait", i.Waited, "", append(attrs, tokenKey.Int64(i.Token)))
		},
		Failed: func(ctx context.Context, i recipes.FailedInfo) {
			attrs := t.attributes(i.Recipe, i.Lock, mode(i.Mode))
			t.waiting.Add(ctx, -1, with(attrs))
			outcome := i.Outcome()
			if outcome == "timeout" {
				t.timeouts.Add(ctx, 1, with(attrs))
			}
			attrs = append(attrs, outcomeKey.String(outcome))
			t.waits.Record(ctx, i.Waited.Seconds(), with(attrs))
			failure := ""
			if outcome == "timeout" || outcome == "error" {
				failure = outcome
			}
			t.span(ctx, "dlock wait", i.Waited, failure, attrs)
		},
		Retrying: func(ctx context.Context, i recipes.RetryingInfo) {
			t.retries.Add(ctx, 1, with(t.attributes(i.Recipe, i.Lock)))
		},
		Released: func(ctx context.Context, i recipes.ReleasedInfo) {
			failure := ""
			if i.Err != nil {
				failure = "the node stayed in the store"
				t.unlocks.Add(ctx, 1, with(t.attributes(i.Recipe, i.Lock, mode(i.Granted))))
			}
			t.ended(ctx, i.Recipe, i.Lock, i.Granted, i.Held, failure)
		},
		Lost: func(ctx context.Context, i recipes.LostInfo) {
			t.losses.Add(ctx, 1, with(t.attributes(i.Recipe, i.Lock, mode(i.Granted), reasonKey.String(i.Reason()))))
			t.ended(ctx, i.Recipe, i.Lock, i.Granted, i.Held, "lost")
		},
		Connected: func(ctx context.Context, i recipes.ConnectedInfo) {
			outcome := "ok"
			if i.Err != nil {
				outcome = "error"
			}
			t.connects.Add(ctx, 1, metric.WithAttributes(outcomeKey.String(outcome)))
		},
		SessionEnded: func(ctx context.Context, i recipes.SessionEndedInfo) {
			reason := "lost"
			if errors.Is(i.Err, dlock.ErrClosed) {
				reason = "closed"
			}
			t.sessionEnds.Add(ctx, 1, metric.WithAttributes(reasonKey.String(reason)))
		},
		Heartbeat: func(ctx context.Context, i recipes.HeartbeatInfo) {
			t.left.Record(ctx, i.Left.Seconds()/i.Term.Seconds())
		},
	}
}

// ended records that a lock was released or lost.
func (t *telemetry) ended(ctx context.Context, recipe, lock string, granted dlock.Mode, held time.Duration, failure string) {
	attrs := t.attributes(recipe, lock, mode(granted))
	t.held.Add(ctx, -1, with(attrs))
	t.holds.Record(ctx, held.Seconds(), with(attrs))
	t.span(ctx, "dlock hold", held, failure, attrs)
}

// span records a span afterwards, because a hook can't put one into the
// caller's context.
func (t *telemetry) span(ctx context.Context, name string, took time.Duration, failure string, attrs []attribute.KeyValue) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	now := time.Now()
	_, s := t.tracer.Start(ctx, name, trace.WithTimestamp(now.Add(-took)), trace.WithAttributes(attrs...))
	if failure != "" {
		s.SetStatus(codes.Error, failure)
	}
	s.End(trace.WithTimestamp(now))
}

func with(attrs []attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(attrs...)
}

func mode(m dlock.Mode) attribute.KeyValue { return modeKey.String(m.String()) }
