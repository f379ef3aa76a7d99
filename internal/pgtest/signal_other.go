//go:build !unix

package pgtest

import (
	"errors"
	"syscall"
)

// These placeholders only make the package compile: this system runs no
// servers.
const (
	sigStop     = syscall.Signal(0)
	sigContinue = syscall.Signal(0)
)

func send(int, syscall.Signal) error { return errors.ErrUnsupported }
