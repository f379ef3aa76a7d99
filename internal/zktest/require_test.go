//go:build unix

package zktest

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// childVariable is set when the test binary runs itself as a child process.
const childVariable = "ZKTEST_CHILD"

// child returns a command that runs one test in a child process. Setsid detaches
// it from the terminal, so that its notice does not appear there.
func child(t *testing.T, test string, env ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), childVariable+"=yes"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func TestMissingZooKeeperIsReportedOrFails(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		t.Run("one", func(t *testing.T) { Start(t) })
		t.Run("another", func(t *testing.T) { Shared(t) })
		return
	}
	nowhere := "ZOOKEEPER_HOME=" + t.TempDir()

	cmd := child(t, "TestMissingZooKeeperIsReportedOrFails", nowhere, zooKeeper.Variable+"=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(stderr.Bytes(), []byte("LEFT OUT")), "once for the binary")
	require.Contains(t, stderr.String(), "make test")
	require.Equal(t, 2, bytes.Count(stdout, []byte("--- SKIP")))

	cmd = child(t, "TestMissingZooKeeperIsReportedOrFails", nowhere, zooKeeper.Variable+"=require")
	stdout, err = cmd.Output()
	require.Error(t, err)
	require.Equal(t, 2, bytes.Count(stdout, []byte("    --- FAIL")))
	require.Contains(t, string(stdout), "apt-get install")
}
