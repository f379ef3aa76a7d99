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

// ownGroup puts the supervisor into a process group of its own. Signals to the
// process group of the test then do not reach the supervisor, which still has
// to clean up. It has no session of its own, because Linux shares the processor
// between sessions (sched_autogroup): beside other work, servers with a session
// each did not run for as long as 8 s.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// pause stops a process with SIGSTOP and returns once all its threads have
// stopped. Threads go on for a moment after the signal was sent, and a server
// could answer in that time.
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

// stopped reports whether every thread of a process is stopped. It returns true
// if the system does not say.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread) // the text has the form: pid (name) state ...
		if err != nil {
			continue // the thread has ended
		}
		_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
		if len(state) > 0 && state[0] != 'T' {
			return false
		}
	}
	return true
}

func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
