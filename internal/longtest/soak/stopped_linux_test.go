package soak

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// stopped reports whether all threads of a process have stopped. SIGSTOP takes
// effect with some delay, in each thread separately.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			return false // the thread has ended
		}
		_, state, _ := bytes.Cut(text, []byte(") ")) // the state follows the program name in parentheses
		if !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return len(threads) > 0
}
