//go:build unix

package zktest

import "syscall"

const canKeepProcesses = true

// ownSession keeps the signals that end a test's process group away from the keeper,
// which has yet to clean up then.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func pause(pid int) error  { return syscall.Kill(pid, syscall.SIGSTOP) }
func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
