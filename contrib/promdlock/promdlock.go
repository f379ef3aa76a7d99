package promdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// Option configures the metrics of New.
type Option func(*options)

type options struct {
	label func(lock string) string // nil for no label
}

// WithLockLabel adds the label "lock" to all metrics about locks. Its value is
// what f returns for the lock's name. Each value creates its own time series,
// so f should return only a few different values, such as the first part of the
// name. f must be a pure function that is safe for concurrent use.
func WithLockLabel(f func(lock string) string) Option {
	return func(o *options) { o.label = f }
}

// New registers the metrics and returns the hooks that update them, to be
// passed to [dlock.WithTrace]. If an earlier New with the same options has
// already registered them with r, both traces update the same metrics. The
// error names the metric that r has rejected, for example because another
// package uses its name.
func New(r prometheus.Registerer, opts ...Option) (*recipes.Trace, error) {
	if r == nil {
		return nil, errors.New("promdlock: the registerer is nil")
	}
	m := new(metrics)
	for _, option := range opts {
		option(&m.options)
	}
	if err := m.register(r); err != nil {
		return nil, err
	}
	m.begin()
	return m.trace(), nil
}

type metrics struct {
	options

	waits, holds                  *prometheus.HistogramVec
	waiting, held                 *prometheus.GaugeVec
	timeouts, losses, unlocks     *prometheus.CounterVec
	retries, connects, sessionEnd *prometheus.CounterVec
	left                          prometheus.Observer

	begun sync.Map // labels for which beginLock was called
}

// seconds are histogram buckets. Hand-overs take about 1 ms, dead holders tens
// of seconds.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// ratios are the histogram buckets for the remaining fraction of a lease.
var ratios = []float64{.05, .1, .15, .2, .25, .3, .4, .5, .6, .7, .8, .9}

func (m *metrics) register(r prometheus.Registerer) (err error) {
	ofLock := func(labels ...string) []string {
		labels = append(labels, "recipe")
		if m.label != nil {
			labels = append(labels, "lock")
		}
		return labels
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return add(r, &err, name, prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return add(r, &err, name, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return add(r, &err, name, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	m.waits = histogram("dlock_wait_seconds", "Time from the call of Lock to its return.", seconds, ofLock("mode", "outcome")...)
	m.holds = histogram("dlock_hold_seconds", "Time from the grant of a lock to its release or loss.", seconds, ofLock("mode")...)
	m.waiting = gauge("dlock_waiting", "Calls of Lock that have not returned.", ofLock("mode")...)
	m.held = gauge("dlock_held", "Locks that are held.", ofLock("mode")...)
	m.timeouts = counter("dlock_timeouts_total", "Calls of Lock whose time limit has passed.", ofLock("mode")...)
	m.losses = counter("dlock_losses_total", "Locks lost while they were held.", ofLock("mode", "reason")...)
	m.unlocks = counter("dlock_unlock_errors_total", "Releases whose node stayed in the store.", ofLock("mode")...)
	m.retries = counter("dlock_retries_total", "Retries of calls of Lock.", ofLock()...)
	m.connects = counter("dlock_connects_total", "Attempts to connect to the store.", "outcome")
	m.sessionEnd = counter("dlock_session_ends_total", "Sessions that have ended.", "reason")
	m.left = histogram("dlock_lease_left_ratio", "What heartbeats left of the lease, as a share of its term.", ratios).WithLabelValues()
	return err
}

// add registers c, or returns the equal collector already registered. It stores
// the first error.
func add[C prometheus.Collector](r prometheus.Registerer, first *error, name string, c C) C {
	err := r.Register(c)
	var twice prometheus.AlreadyRegisteredError
	if errors.As(err, &twice) {
		if there, same := twice.ExistingCollector.(C); same {
			return there
		}
	}
	if err != nil && *first == nil {
		*first = fmt.Errorf("promdlock: register %s: %w", name, err)
	}
	return c
}

// begin creates counters with the value zero, because rate() in PromQL misses a
// new counter's first event.
func (m *metrics) begin() {
	m.connects.WithLabelValues("ok")
	m.connects.WithLabelValues("error")
	m.sessionEnd.WithLabelValues("closed")
	m.sessionEnd.WithLabelValues("lost")
	if m.label != nil {
		return
	}
	m.beginLock("lock", "", dlock.Exclusive)
	m.beginLock("lock", "", dlock.Shared)
	m.beginLock("semaphore", "", dlock.Shared)
	m.beginLock("election", "", dlock.Exclusive)
	m.beginLock("majority", "", dlock.Exclusive)
}

func (m *metrics) beginLock(recipe, lock string, mode dlock.Mode) {
	labels := m.of(recipe, lock, mode.String())
	if _, begun := m.begun.LoadOrStore([3]string(append(labels, "")), true); begun {
		return
	}
	m.retries.WithLabelValues(labels[1:]...)
	m.timeouts.WithLabelValues(labels...)
	m.unlocks.WithLabelValues(labels...)
	m.waiting.WithLabelValues(labels...)
	m.held.WithLabelValues(labels...)
	for _, err := range []error{driver.ErrSessionEnded, driver.ErrLostData, dlock.ErrMaxHold, dlock.ErrClosed, nil} {
		m.losses.WithLabelValues(m.of(recipe, lock, mode.String(), recipes.LostInfo{Err: err}.Reason())...)
	}
}

// of builds the label values of a lock's metric.
func (m *metrics) of(recipe, lock string, values ...string) []string {
	values = append(values, recipe)
	if m.label != nil {
		values = append(values, strings.ToValidUTF8(m.label(lock), "\uFFFD")) // Prometheus panics on invalid UTF-8
	}
	return values
}

func (m *metrics) trace() *recipes.Trace {
	return &recipes.Trace{
		Started: func(_ context.Context, i recipes.StartedInfo) {
			m.beginLock(i.Recipe, i.Lock, i.Mode)
			m.waiting.WithLabelValues(m.of(i.Recipe, i.Lock, i.Mode.String())...).Inc()
		},
		Granted: func(_ context.Context, i recipes.GrantedInfo) {
			m.waits.WithLabelValues(m.of(i.Recipe, i.Lock, i.Mode.String(), "granted")...).Observe(i.Waited.Seconds())
			m.waiting.WithLabelValues(m.of(i.Recipe, i.Lock, i.Mode.String())...).Dec()
			m.held.WithLabelValues(m.of(i.Recipe, i.Lock, i.Mode.String())...).Inc()
		},
		Failed: func(_ context.Context, i recipes.FailedInfo) {
			mode := m.of(i.Recipe, i.Lock, i.Mode.String())
			m.waiting.WithLabelValues(mode...).Dec()
			m.waits.WithLabelValues(m.of(i.Recipe, i.Lock, i.Mode.String(), i.Outcome())...).Observe(i.Waited.Seconds())
			if errors.Is(i.Err, dlock.ErrTimeout) {
				m.timeouts.WithLabelValues(mode...).Inc()
			}
		},
		Retrying: func(_ context.Context, i recipes.RetryingInfo) {
			m.retries.WithLabelValues(m.of(i.Recipe, i.Lock)...).Inc()
		},
		Released: func(_ context.Context, i recipes.ReleasedInfo) {
			mode := m.of(i.Recipe, i.Lock, i.Granted.String())
			m.held.WithLabelValues(mode...).Dec()
			m.holds.WithLabelValues(mode...).Observe(i.Held.Seconds())
			if i.Err != nil {
				m.unlocks.WithLabelValues(mode...).Inc()
			}
		},
		Lost: func(_ context.Context, i recipes.LostInfo) {
			mode := m.of(i.Recipe, i.Lock, i.Granted.String())
			m.held.WithLabelValues(mode...).Dec()
			m.holds.WithLabelValues(mode...).Observe(i.Held.Seconds())
			m.losses.WithLabelValues(m.of(i.Recipe, i.Lock, i.Granted.String(), i.Reason())...).Inc()
		},
		Connected: func(_ context.Context, i recipes.ConnectedInfo) {
			outcome := "ok"
			if i.Err != nil {
				outcome = "error"
			}
			m.connects.WithLabelValues(outcome).Inc()
		},
		SessionEnded: func(_ context.Context, i recipes.SessionEndedInfo) {
			reason := "lost"
			if errors.Is(i.Err, dlock.ErrClosed) {
				reason = "closed"
			}
			m.sessionEnd.WithLabelValues(reason).Inc()
		},
		Heartbeat: func(_ context.Context, i recipes.HeartbeatInfo) {
			m.left.Observe(i.Left.Seconds() / i.Term.Seconds())
		},
	}
}
