package testenv

import (
	"errors"
	"time"
)

// RetryNewPorts calls start until start returns no error that matches
// [ErrPortTaken], and returns the results of the last call. Each call of start
// chooses ports of its own, and leaves nothing behind if it returns an error.
func RetryNewPorts[S any](start func() (S, error)) (S, error) {
	for {
		server, err := start()
		if !errors.Is(err, ErrPortTaken) {
			return server, err
		}
	}
}

// RetrySamePorts calls start, which starts a server again on its old ports. If
// the error matches [ErrPortTaken], it calls start again, five times in all. The
// reason: another process may hold a port for a moment, while that process looks
// for a free port.
func RetrySamePorts(start func() error) error {
	for try := 1; ; try++ {
		err := start()
		if try == 5 || !errors.Is(err, ErrPortTaken) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}
