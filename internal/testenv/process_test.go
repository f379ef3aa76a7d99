//go:build unix

package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childVariable tells a child process of the test binary what to do.
const childVariable = "TESTENV_CHILD"

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 5*time.Millisecond)
}

func program(t *testing.T, script string) Server {
	t.Helper()
	return shells().Start(t, shell(script))
}

func shells() *Store { return &Store{Package: "testenv", Find: func() error { return nil }} }

// shell runs the next script at each try. In scripts, $0 is the server's
// directory.
func shell(scripts ...string) Configure {
	return func(s *Server, _ []*Server) (command []string, ready func() bool) {
		command, scripts = []string{"/bin/sh", "-c", scripts[0], s.Dir()}, scripts[1:]
		return command, func() bool { return strings.Contains(s.Log(), "serving") }
	}
}

func TestAServerIsStartedPausedAndStopped(t *testing.T) {
	p := program(t, "sleep 601 & echo serving; exec sleep 600")
	require.False(t, p.Down())
	pid := p.Pid()
	require.True(t, running(pid))
	child := children(pid)
	require.Len(t, child, 1)

	p.Pause()
	require.True(t, stopped(pid))
	require.True(t, stopped(child[0]))
	p.Resume()
	require.False(t, stopped(child[0]))
	p.Pause()
	p.Stop()
	require.True(t, p.Down())
	require.False(t, running(pid))
	require.Error(t, p.signal(pause), "Pause of a server that is down")
	require.DirExists(t, p.Dir())
	require.True(t, running(child[0]))
	require.NoError(t, killAll(child))

	p.Restart()
	child = children(p.Pid())
	p.Kill()
	require.False(t, running(child[0]))
	require.Empty(t, children(p.Pid()))
}

func TestServerThatExitsSaysWhy(t *testing.T) {
	_, err := shells().tryAll(t, 1, shell("echo the reason"))
	require.ErrorContains(t, err, "did not start:\nthe reason")
}

func TestATakenPortIsTriedAgain(t *testing.T) {
	s := shells().Start(t, shell("echo Address already in use", "sleep 0.1; echo java.net.BindException",
		"cd $0; echo >>starts; case $(wc -l <starts) in 2 | 3) echo address already in use ;; *) echo serving; exec sleep 600 ;; esac"))
	s.Restart()
	starts, err := os.ReadFile(s.File("starts"))
	require.NoError(t, err)
	require.Len(t, starts, 4)
}

// child returns a command that runs one test of this binary without a terminal.
func child(t *testing.T, test, what string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"="+what)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func TestAMissingProgramIsReportedOnceOrFails(t *testing.T) {
	if what := os.Getenv(childVariable); what != "" {
		t.Setenv("TESTENV_MISSING", what)
		for range 2 {
			t.Run("test", func(t *testing.T) {
				Dependency{Name: "x", Variable: "TESTENV_MISSING", Install: "apt-get install x"}.Require(t, errors.New("no x"))
			})
		}
		return
	}
	for what, result := range map[string]string{"skip": "    --- SKIP", "require": "    --- FAIL"} {
		cmd := child(t, "TestAMissingProgramIsReportedOnceOrFails", what)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		stdout, err := cmd.Output()
		require.Equal(t, what == "require", err != nil, "%s", stdout)
		require.Equal(t, 2, strings.Count(string(stdout), result))
		require.Equal(t, 2, strings.Count(string(stdout), "no x: apt-get install x"))
		require.Equal(t, what == "skip", strings.Count(stderr.String(), "LEFT OUT") == 1, "once for the binary")
	}
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
			cmd := child(t, "TestNothingOutlivesTheTestBinary", name)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			supervisor, server, dir := readChild(t, out)
			require.True(t, running(server))
			require.DirExists(t, dir)

			require.NoError(t, end(cmd))
			require.Error(t, cmd.Wait())

			eventually(t, func() bool {
				_, err := os.Stat(dir)
				return !running(server) && errors.Is(err, os.ErrNotExist)
			})
			eventually(t, func() bool { return !running(supervisor) })
		})
	}
}

func startAndHang(t *testing.T, kind string) {
	p := program(t, "echo serving; exec sleep 600")
	if strings.HasPrefix(kind, "paused") {
		p.Pause()
	}
	// Catch SIGHUP, because it would be ignored if the test runs under nohup.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT)
	fmt.Printf("started %d %d %s\n", p.supervisor.cmd.Process.Pid, p.Pid(), p.Dir())
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
