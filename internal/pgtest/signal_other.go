//go:build !unix

package pgtest

import (
	"errors"
	"syscall"
)

// No server runs on this system, so these numbers are not used.
const (
	sigStop     = syscall.Signal(0)
	sigContinue = syscall.Signal(0)
)

func send(int, syscall.Signal) error { return errors.ErrUnsupported }
