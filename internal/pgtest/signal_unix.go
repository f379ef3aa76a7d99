//go:build unix

package pgtest

import "syscall"

const (
	sigStop     = syscall.SIGSTOP
	sigContinue = syscall.SIGCONT
)

func send(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }
