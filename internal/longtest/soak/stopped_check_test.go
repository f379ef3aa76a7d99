//go:build linux || darwin

package soak

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAProcessHasStoppedWhenAllItsThreadsHave(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	require.False(t, stopped(cmd.Process.Pid))
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool { return stopped(cmd.Process.Pid) }, 30*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool { return !stopped(cmd.Process.Pid) }, 30*time.Second, time.Millisecond)
	require.False(t, stopped(os.Getpid()))
}
