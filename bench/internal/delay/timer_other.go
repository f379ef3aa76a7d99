//go:build !linux

package delay

import "time"

// timer lets one goroutine sleep. Outside Linux, the timers of the Go runtime are
// precise enough.
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

// sleepUntil returns at the given time, never earlier.
func (*timer) sleepUntil(at time.Time) error {
	time.Sleep(time.Until(at))
	return nil
}

func (*timer) close() {}
