//go:build unix

package zktest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const canKeepProcesses = true

// ownSession keeps the signals that end a test's process group away from the keeper,
// which has yet to clean up then.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// pause returns once the process has stopped: its threads go on for a moment after the signal was sent, and a server has
// time to answer then.
func pause(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(10 * time.Second); !stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("zktest: process %d goes on after SIGSTOP", pid)
		}
	}
	return nil
}

// stopped tells whether every thread of a process is stopped. Where the system does not say, it counts as true.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread) // pid (name) state ...
		if err != nil {
			continue // it has ended
		}
		_, state, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
		if len(state) > 0 && state[0] != 'T' {
			return false
		}
	}
	return true
}

func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
