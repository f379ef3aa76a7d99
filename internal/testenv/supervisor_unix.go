//go:build unix

package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// CanRunProcesses reports whether this package can run servers on this system.
const CanRunProcesses = true

// ownGroup puts the supervisor into its own process group, so that it survives
// a signal to the test's group and can clean up. It does not start a new
// session: Linux divides CPU time among sessions (sched_autogroup), which once
// starved servers for 8 s.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// pause stops a process with SIGSTOP and waits until all its threads have
// stopped, because a running thread could still answer a client.
func pause(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); !stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("testenv: process %d goes on after SIGSTOP", pid)
		}
	}
	return nil
}

// stopped reports whether all threads of a process are stopped. Without /proc
// it cannot tell, and returns true.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread) // pid (name) state ...
		if err != nil {
			continue // the thread has exited
		}
		_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
		if len(state) > 0 && state[0] != 'T' {
			return false
		}
	}
	return true
}

func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
