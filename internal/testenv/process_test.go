//go:build unix

package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childVariable is set when the test binary runs itself as a child process. Its
// value says what the child does.
const childVariable = "TESTENV_CHILD"

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 5*time.Millisecond)
}

func program(t *testing.T, script string, args ...string) *Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "testenv-")
	require.NoError(t, err)
	p, err := NewProcess(dir, append([]string{"/bin/sh", "-c", script, "server"}, args...))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func startup(p *Process) Startup {
	logs := func(word string) func(string) bool {
		return func(log string) bool { return strings.Contains(log, word) }
	}
	return Startup{
		Ready:     func() bool { return logs("ready")(p.Log(0)) },
		Exiting:   logs("exiting"),
		PortTaken: logs("taken"),
	}
}

func TestStartReturnsWhenTheServerIsReady(t *testing.T) {
	p := program(t, "echo ready; exec sleep 600")
	require.True(t, p.Down())
	require.NoError(t, p.Start(startup(p)))
	require.False(t, p.Down())
	require.True(t, alive(p.Pid()))

	pid := p.Pid()
	require.NoError(t, p.Pause())
	require.True(t, stopped(pid))
	require.NoError(t, p.Resume())
	require.NoError(t, p.Pause())
	require.NoError(t, p.Stop(), "Stop of a paused server")
	require.True(t, p.Down())
	require.False(t, alive(pid))
	require.Error(t, p.Pause(), "Pause of a server that is down")
	require.DirExists(t, p.Dir())

	require.NoError(t, p.Start(startup(p)))
	require.NoError(t, p.Kill())
}

func TestServerThatExitsSaysWhy(t *testing.T) {
	p := program(t, "echo exiting; echo the reason")
	require.ErrorContains(t, p.Start(startup(p)), "the reason")
	require.True(t, p.Down())
}

// A server may log that it is exiting before it logs that its port is taken.
func TestTakenPortIsNoticedAfterTheServerSaidThatItExits(t *testing.T) {
	p := program(t, `echo exiting; sleep 0.3; echo taken`)
	s := startup(p)
	s.Ready = func() bool {
		eventually(t, func() bool { return s.Exiting(p.Log(0)) })
		return false
	}
	require.ErrorIs(t, p.Start(s), ErrPortTaken)
}

func TestNothingOutlivesTheTestBinary(t *testing.T) {
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
		"process group killed":    signalGroup(syscall.SIGKILL),
		"process group hung up":   signalGroup(syscall.SIGHUP),
		"process group interrupt": signalGroup(syscall.SIGINT),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binary, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command(binary, "-test.run=^TestNothingOutlivesTheTestBinary$", "-test.v")
			cmd.Env = append(os.Environ(), childVariable+"="+name)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			supervisor, server, dir := readChild(t, out)
			require.True(t, alive(server))
			require.DirExists(t, dir)

			require.NoError(t, end(cmd))
			require.Error(t, cmd.Wait())

			eventually(t, func() bool {
				_, err := os.Stat(dir)
				return !alive(server) && errors.Is(err, os.ErrNotExist)
			})
			eventually(t, func() bool { return !running(supervisor) })
		})
	}
}

// startAndHang runs in a child process. It starts servers, prints their process
// IDs and directories, and waits for a signal.
func startAndHang(t *testing.T, kind string) {
	p := program(t, "echo ready; exec sleep 600")
	require.NoError(t, p.Start(startup(p)))
	if strings.HasPrefix(kind, "paused") {
		require.NoError(t, p.Pause())
	}
	// Catch SIGHUP, because it would be ignored if the test runs under nohup.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT)
	fmt.Printf("started %d %d %s\n", p.SupervisorPid(), p.Pid(), p.Dir())
	<-signals
	os.Exit(1) // without any cleanup
}

func readChild(t *testing.T, out io.Reader) (supervisor, server int, dir string) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), "started %d %d %s", &supervisor, &server, &dir); n == 3 {
			return supervisor, server, dir
		}
	}
	t.Fatal("the child did not start a server")
	return 0, 0, ""
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// running reports whether the process exists and is not a zombie. If the first
// process of a container does not reap orphans, they remain zombies forever.
func running(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		_, noProc := os.Stat("/proc/self/stat")
		return alive(pid) && noProc != nil
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}
