package soak

import (
	"bytes"
	"os/exec"
	"strconv"
)

// stopped reports whether a process has stopped. SIGSTOP takes effect with some
// delay.
func stopped(pid int) bool {
	state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && bytes.HasPrefix(bytes.TrimSpace(state), []byte("T"))
}
