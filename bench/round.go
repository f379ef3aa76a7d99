package main

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/bench/internal/stats"
	"github.com/dlock-go/dlock/bench/internal/work"
)

// sample maps figure names to the values measured in one round. Times and cpu
// are in microseconds.
type sample map[string]float64

// round runs a plan in a child. It reads the server's counters before and
// after.
func round(c *child, s server, p work.Plan, age time.Duration) (sample, error) {
	p.Server = s.addr()
	atStart, err := s.read()
	if err != nil {
		return nil, err
	}
	if err := c.prepare(p); err != nil {
		return nil, err
	}
	var joinBytes float64
	if p.Kind == work.Drain {
		if joinBytes, err = awaitQueue(s, atStart, p, age); err != nil {
			return nil, err
		}
	}
	before, err := s.read()
	if err != nil {
		return nil, err
	}
	report, err := c.measure(p)
	if err != nil {
		return nil, err
	}
	after, err := s.read()
	if err != nil {
		return nil, err
	}
	figures, err := evaluate(p, report, after.minus(before).minus(s.readCost()))
	if err != nil {
		return nil, err
	}
	if p.Kind == work.Drain {
		figures["join bytes"] = joinBytes
	}
	return figures, c.end()
}

// awaitQueue waits until all contenders are queued and have waited for age. If
// age is zero, it waits until the server has been idle for 500 ms. That exceeds
// the 300 ms after which a dlock holder watches its own node. awaitQueue
// returns the traffic for each contender.
func awaitQueue(s server, start counters, p work.Plan, age time.Duration) (bytes float64, err error) {
	const pause, idlePauses = 100 * time.Millisecond, 5
	const background = 10 // upper limit of the pings that an idle server receives in a pause
	last := start
	idle := 0
	for began := time.Now(); idle < idlePauses; time.Sleep(pause) {
		now, err := s.read()
		if err != nil {
			return 0, err
		}
		joined := now.contenders >= float64(p.Contenders+1)
		if joined && now.received-last.received <= background {
			idle++
		} else {
			idle = 0
		}
		last = now
		if joined && age > 0 {
			time.Sleep(age)
			break
		}
		if time.Since(began) > answerWithin {
			return 0, fmt.Errorf("%v of %d contenders are in the queue after %v", now.contenders-1, p.Contenders, answerWithin)
		}
	}
	used := last.minus(start)
	return (used.bytesIn + used.bytesOut) / float64(p.Contenders), nil
}

// evaluate computes the figures of a round. Traffic, CPU time and allocations
// are given per acquisition, or per try.
func evaluate(p work.Plan, r work.Report, used counters) (sample, error) {
	done := float64(stats.Sum(r.Counts))
	if p.Kind == work.Try {
		done = float64(r.Tries)
	}
	if done <= float64(p.Untimed) || r.Seconds <= 0 {
		return nil, fmt.Errorf("nothing was done in %.1fs", r.Seconds)
	}
	timed := done - float64(p.Untimed)
	s := sample{
		"rate":     timed / r.Seconds,
		"requests": used.received / done,
		"packets":  (used.received + used.sent) / done,
		"bytes":    (used.bytesIn + used.bytesOut) / done,
		"cpu":      r.CPU / timed * 1e6,
	}
	if r.Allocs >= 0 {
		s["allocs"] = float64(r.Allocs) / timed
	}
	switch p.Kind {
	case work.Loop:
		s["least"], s["most"] = stats.Shares(shares(p, r.Counts))
	case work.Try:
		s["won"] = float64(stats.Sum(r.Counts)) / r.Seconds
	}
	if len(r.Latencies) > 0 {
		us := make([]float64, len(r.Latencies))
		for i, ns := range r.Latencies {
			us[i] = float64(ns) / 1e3
		}
		s["p50"], s["p90"], s["p99"] = stats.Percentile(us, 50), stats.Percentile(us, 90), stats.Percentile(us, 99)
	}
	for name, v := range s {
		s[name] = significant(v)
	}
	return s, nil
}

// shares returns the number of acquisitions of each contender, or of each
// session if contenders share sessions.
func shares(p work.Plan, counts []int64) []int64 {
	if p.Sessions <= 1 || p.Sessions >= len(counts) {
		return counts
	}
	bySession := make([]int64, p.Sessions)
	for i, n := range counts {
		bySession[i%p.Sessions] += n
	}
	return bySession
}
