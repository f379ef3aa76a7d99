package testenv

import (
	"errors"
	"time"
)

// RetryNewPorts calls start until its error does not match [ErrPortTaken], and
// returns the last results. Each call must choose new ports, and must clean up
// after itself if it fails.
func RetryNewPorts[S any](start func() (S, error)) (S, error) {
	for {
		server, err := start()
		if !errors.Is(err, ErrPortTaken) {
			return server, err
		}
	}
}

// RetrySamePorts calls start, which restarts a server on its previous ports, up
// to five times while the error matches [ErrPortTaken]. A process that is
// looking for a free port may briefly hold one of them.
func RetrySamePorts(start func() error) error {
	for try := 1; ; try++ {
		err := start()
		if try == 5 || !errors.Is(err, ErrPortTaken) {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}
