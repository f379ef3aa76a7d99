//go:build !unix

package testenv

import (
	"errors"
	"syscall"
)

// CanRunProcesses reports whether this package can run servers on this system.
const CanRunProcesses = false

func ownGroup() *syscall.SysProcAttr { return nil }

func pause(int) error  { return errors.ErrUnsupported }
func resume(int) error { return errors.ErrUnsupported }

func running(int) bool    { return true }
func children(int) []int  { return nil }
func killAll([]int) error { return nil }
