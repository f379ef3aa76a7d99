//go:build !unix

package zktest

import (
	"errors"
	"syscall"
)

const canKeepProcesses = false

func ownSession() *syscall.SysProcAttr { return nil }

func pause(int) error  { return errors.ErrUnsupported }
func resume(int) error { return errors.ErrUnsupported }
