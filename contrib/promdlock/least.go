package promdlock

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// least is a gauge of the smallest duration of the last one or two windows.
// Unlike a minimum since the last scrape, it does not depend on who scrapes.
type least struct {
	desc *prometheus.Desc

	mu        sync.Mutex
	began     time.Time     // of the current window; guarded by mu
	now, last time.Duration // the minima of both windows, or none; guarded by mu
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

// advance begins another window if the current one is over. It is called with
// mu held.
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
