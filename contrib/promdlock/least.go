package promdlock

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// least is a gauge of the shortest duration observed in the last one or two
// windows. Several servers may scrape it, so scrapes do not reset it.
type least struct {
	desc *prometheus.Desc

	mu        sync.Mutex
	began     time.Time     // start of the current window; guarded by mu
	now, last time.Duration // minima of the current and the previous window, or none; guarded by mu
}

const (
	window = 5 * time.Minute
	none   = time.Duration(1<<63 - 1)
)

func newLeast() *least {
	return &least{
		desc:  prometheus.NewDesc("dlock_lease_left_min_seconds", "The least that heartbeats left of the lease in the last 5 to 10 minutes.", nil, nil),
		began: time.Now(), now: none, last: none,
	}
}

func (l *least) observe(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance()
	l.now = min(l.now, d)
}

// advance begins a new window if the current one is over. l.mu must be held.
func (l *least) advance() {
	age := time.Since(l.began)
	if age < window {
		return
	}
	l.last, l.now = l.now, none
	if age >= 2*window {
		l.last = none
	}
	l.began = time.Now()
}

// Describe implements prometheus.Collector.
func (l *least) Describe(c chan<- *prometheus.Desc) { c <- l.desc }

// Collect implements prometheus.Collector.
func (l *least) Collect(c chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance()
	if d := min(l.now, l.last); d != none {
		c <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, d.Seconds())
	}
}
