package testenv

import (
	"errors"
	"time"
)

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
