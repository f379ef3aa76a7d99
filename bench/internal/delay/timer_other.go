//go:build !linux

package delay

import "time"

// timer sleeps by the runtime's timers, which are precise enough on this
// system. Only one goroutine may use a timer.
type timer struct{}

func newTimer() (*timer, error) { return &timer{}, nil }

// sleepUntil never returns early.
func (*timer) sleepUntil(at time.Time) error {
	time.Sleep(time.Until(at))
	return nil
}

func (*timer) close() {}
