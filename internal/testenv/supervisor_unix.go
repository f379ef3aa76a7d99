//go:build unix

package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// stopped reports whether all threads of a process are stopped or have exited.
// Without /proc it cannot tell, and returns true.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread) // pid (name) state ...
		if err != nil {
			continue // the thread has exited
		}
		_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
		if len(state) > 0 && state[0] != 'T' && state[0] != 'Z' {
			return false
		}
	}
	return true
}

func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }

// running reports whether the process exists and has not exited. After its
// exit, a process may stay a zombie forever, because in some containers nothing
// reaps orphans. Without /proc, running returns true for a zombie.
func running(pid int) bool {
	state, _ := stat(pid)
	return state != 'Z' && syscall.Kill(pid, 0) == nil
}

// children returns nil if pid is 0, because the server is then down. Processes
// whose parent is 0 exist in containers, but are not the server's.
func children(pid int) (found []int) {
	if pid <= 0 {
		return nil
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		child, _ := strconv.Atoi(filepath.Base(process))
		if _, parent := stat(child); parent == pid {
			found = append(found, child)
		}
	}
	return found
}

// stat returns the state of a process, such as 'Z', and its parent, or zeros
// without /proc.
func stat(pid int) (state byte, parent int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // pid (name) state parent ...
	_, _ = fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %c %d", &state, &parent)
	return state, parent
}

func killAll(pids []int) error {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // fails if the process has exited
	}
	for _, pid := range pids {
		for end := time.Now().Add(ReadyWithin); running(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Errorf("testenv: process %d goes on after SIGKILL", pid)
			}
		}
	}
	return nil
}
