//go:build unix

package zktest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// childVariable is set when the test binary runs itself as a child process. Its
// value says what the child does.
const childVariable = "ZKTEST_CHILD"

// child returns a command that runs one test in a child process, which has its
// own process group, so that the test can send signals to it alone.
func child(t *testing.T, test, kind string, env ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), childVariable+"="+kind), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func TestNothingOutlivesTheTestBinary(t *testing.T) {
	Require(t)
	if kind := os.Getenv(childVariable); kind != "" {
		startAndHang(t, kind)
	}
	killProcess := func(cmd *exec.Cmd) error { return cmd.Process.Kill() }
	signalGroup := func(s syscall.Signal) func(*exec.Cmd) error {
		return func(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, s) }
	}
	for name, end := range map[string]func(*exec.Cmd) error{
		"process killed":          killProcess,
		"paused, process killed":  killProcess,
		"shared, process killed":  killProcess,
		"process group killed":    signalGroup(syscall.SIGKILL),
		"process group hung up":   signalGroup(syscall.SIGHUP),
		"process group interrupt": signalGroup(syscall.SIGINT),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := child(t, "TestNothingOutlivesTheTestBinary", name)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			supervisor, java, dir := parseChild(t, out)
			require.True(t, alive(java))
			require.DirExists(t, dir)

			require.NoError(t, end(cmd))
			require.Error(t, cmd.Wait())

			eventually(t, func() bool { return !alive(java) && !exists(dir) })
			eventually(t, func() bool { return !running(supervisor) })
		})
	}
}

// startAndHang runs in a child process. It starts a server, prints the server's
// process IDs and directory, and waits for a signal.
func startAndHang(t *testing.T, kind string) {
	var s *Server
	if kind == "shared, process killed" {
		s = Shared(t)
	} else {
		s = Start(t)
	}
	if kind == "paused, process killed" {
		s.Pause()
	}
	// Catch SIGHUP, because it would be ignored if the test runs under nohup.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT)
	fmt.Printf("started %d %d %s\n", s.proc.SupervisorPid(), s.proc.Pid(), s.proc.Dir())
	<-signals
	os.Exit(1) // without any cleanup
}

func parseChild(t *testing.T, out io.Reader) (supervisor, java int, dir string) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), "started %d %d %s", &supervisor, &java, &dir); n == 3 {
			return supervisor, java, dir
		}
	}
	t.Fatal("the child did not start a server")
	return 0, 0, ""
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// running reports whether the process exists and is not a zombie. If the first
// process of a container does not reap orphans, they remain zombies forever.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return alive(pid) && !exists("/proc/self/stat")
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}

func TestMissingZooKeeperIsReportedOrFails(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		t.Run("one", func(t *testing.T) { Start(t) })
		t.Run("another", func(t *testing.T) { Shared(t) })
		return
	}
	nowhere := "ZOOKEEPER_HOME=" + t.TempDir()

	cmd := child(t, "TestMissingZooKeeperIsReportedOrFails", "skip", nowhere, requireVariable+"=")
	// Setsid detaches the child from the terminal, so that its notice does not
	// appear there.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(stderr.Bytes(), []byte("LEFT OUT")), "once for the binary")
	require.Contains(t, stderr.String(), "make test")
	require.Equal(t, 2, bytes.Count(stdout, []byte("--- SKIP")))

	cmd = child(t, "TestMissingZooKeeperIsReportedOrFails", "require", nowhere, requireVariable+"=require")
	stdout, err = cmd.Output()
	require.Error(t, err)
	require.Equal(t, 2, bytes.Count(stdout, []byte("    --- FAIL")))
	require.Contains(t, string(stdout), "apt-get install")
}
