//go:build !linux

package delay

import "time"

// timer lets one goroutine sleep, with runtime timers, which are precise enough here.
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

// sleepUntil never returns early.
func (*timer) sleepUntil(at time.Time) error {
	time.Sleep(time.Until(at))
	return nil
}

func (*timer) close() {}
