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

// ownGroup makes the supervisor survive a signal to the test's group. A new
// session could starve, because Linux divides CPU time among sessions.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// pause waits until all threads have stopped, because a running one could answer
// a client.
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

// stopped reports whether no thread runs. Without /proc, it returns true.
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

// running returns false for zombies, because some containers reap no orphans.
func running(pid int) bool {
	state, _ := stat(pid)
	return state != 'Z' && syscall.Kill(pid, 0) == nil
}

// children returns nil for pid 0, a stopped server. In containers, other
// processes have the parent 0.
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

// stat returns a process's state, such as 'Z', and parent, or zeros without
// /proc.
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
