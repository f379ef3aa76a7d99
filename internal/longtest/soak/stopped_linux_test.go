package soak

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// stopped tells whether every thread of a process has stopped: each does so in its own time after SIGSTOP.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			return false // it has ended meanwhile
		}
		_, state, _ := bytes.Cut(text, []byte(") ")) // behind the name of the program
		if !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return len(threads) > 0
}
