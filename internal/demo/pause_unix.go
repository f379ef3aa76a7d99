//go:build unix

package demo

import (
	"os"
	"syscall"
)

const canPause = true

// Errors are ignored: a signal fails only if the process has exited.
func pauseProcess(p *os.Process)    { _ = p.Signal(syscall.SIGSTOP) }
func continueProcess(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
