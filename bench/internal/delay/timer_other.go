//go:build !linux

package delay

import "time"

// timer sleeps with runtime timers, which are precise enough here. Only one
// goroutine may use it.
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

// sleepUntil never returns early.
func (*timer) sleepUntil(at time.Time) error {
	time.Sleep(time.Until(at))
	return nil
}

func (*timer) close() {}
