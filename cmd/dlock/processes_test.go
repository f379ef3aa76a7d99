//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/internal/exampledriver" // a store that needs no server
)

// run is a demo whose processes share a store in a directory.
type run struct {
	*exec.Cmd
	dir     string // the store
	temp    string
	out     io.Closer // closes the pipe that lines reads from
	lines   *bufio.Scanner
	printed strings.Builder // everything that was read from lines
	stderr  safeBuffer
	pids    map[string]int // process ids, by worker name
}

func newRun(t *testing.T, args ...string) *run {
	r := &run{dir: t.TempDir(), temp: t.TempDir(), pids: make(map[string]int)}
	r.Cmd = program(t, append([]string{"demo", "-driver", "file", "-dsn", r.dir + "?session_timeout=5s"}, args...)...)
	r.Env = append(r.Env, "DLOCK_DSN=", "TMPDIR="+r.temp)
	r.WaitDelay = waitLimit // Wait would block on a leftover child
	out, err := r.StdoutPipe()
	require.NoError(t, err)
	r.out, r.Stderr, r.lines = out, &r.stderr, bufio.NewScanner(out)
	t.Cleanup(func() {
		for _, pid := range r.pids { // some are left if the test has failed
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return r
}

// startWorkers starts a demo whose six workers hold the lock or wait for it.
func startWorkers(t *testing.T, hold string) *run {
	r := newRun(t, "-workers", "6", "-hold", hold)
	require.NoError(t, r.Start())
	queued := make(map[string]bool)
	r.read(t, func(line string) bool {
		if m := queuedLine.FindStringSubmatch(line); m != nil {
			queued[m[1]] = true
		}
		return len(queued) == 6
	})
	require.Len(t, r.pids, 6)
	return r
}

func startFault(t *testing.T, fault, verb string) *run {
	r := newRun(t, "-fault", fault, "-hold", "100ms")
	require.NoError(t, r.Start())
	r.readUntil(t, "  "+verb+"  ")
	require.Len(t, r.pids, 2)
	return r
}

var (
	startLine  = regexp.MustCompile(`  (worker-\d+) +starts    as process (\d+)$`)
	queuedLine = regexp.MustCompile(`^ *[0-9.]+s  (\S+) [RW]  (?:holds|waits) `)
)

func (r *run) read(t *testing.T, done func(line string) bool) {
	for r.lines.Scan() {
		line := r.lines.Text()
		fmt.Fprintln(&r.printed, line)
		if m := startLine.FindStringSubmatch(line); m != nil {
			pid, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			r.pids[m[1]] = pid
		}
		if done(line) {
			return
		}
	}
	require.Failf(t, "the output ended early", "%s%s", &r.printed, &r.stderr)
}

func (r *run) readUntil(t *testing.T, text string) {
	r.read(t, func(line string) bool { return strings.Contains(line, text) })
}

// end waits for the demo and fails the test if processes or files are left.
func (r *run) end(t *testing.T) error {
	for r.lines.Scan() {
		fmt.Fprintln(&r.printed, r.lines.Text())
	}
	err := r.Wait()
	for worker, pid := range r.pids {
		assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the process of %s is left", worker)
	}
	r.requireNoFile(t)
	return err
}

func (r *run) requireNoFile(t *testing.T) {
	left, err := os.ReadDir(r.temp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func (r *run) requireNoNode(t *testing.T) {
	c, err := dlock.Open("file", r.dir+"?session_timeout=5s")
	require.NoError(t, err)
	defer c.Close()
	left, err := c.RWMutex("demo").Queue(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAKilledProcessDelaysTheOthersAndBreaksNoRule(t *testing.T) {
	r := startFault(t, "kill", "KILLED")
	require.NoError(t, r.end(t), "%s%s", &r.printed, &r.stderr)
	out := r.printed.String()
	assert.Contains(t, out, "VERDICT: OK\n")
	assert.Contains(t, out, "worker-1 W  REFUSED   0 + 1 = 1 with token")
	m := regexp.MustCompile(`After (\S+s), worker-2 got the lock and wrote\.`).FindStringSubmatch(out)
	require.NotNil(t, m, "%s", out)
	stayed, err := time.ParseDuration(m[1])
	require.NoError(t, err)
	assert.Greater(t, stayed, time.Second, "the session has to end first")
}

func TestASignalEndsAllProcessesInGoodOrder(t *testing.T) {
	for _, sent := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sent.String(), func(t *testing.T) {
			r := startWorkers(t, "10m")
			require.NoError(t, r.Process.Signal(sent)) // to the parent only
			if sent != os.Interrupt {                  // timeout and closing terminals send these twice
				r.readUntil(t, "  leaves  ")
				require.NoError(t, r.Process.Signal(sent))
			}
			require.NoError(t, r.end(t), "%s%s", &r.printed, &r.stderr)
			assert.Contains(t, r.printed.String(), "VERDICT: OK as far as it went, interrupted\n")
			assert.Equal(t, 6, strings.Count(r.printed.String(), "  leaves  ")+strings.Count(r.printed.String(), "  releases\n"))
			assert.Empty(t, r.stderr.String())
			r.requireNoNode(t)
		})
	}
}

func TestTheProgramNohupKeepsTheRunGoing(t *testing.T) {
	r := newRun(t, "-workers", "4", "-hold", "1s")
	r.Path, r.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, r.Args...)
	require.NoError(t, r.Start())
	r.read(t, queuedLine.MatchString)
	require.NoError(t, r.Process.Signal(syscall.SIGHUP))
	require.NoError(t, r.end(t))
	assert.Contains(t, r.printed.String(), "VERDICT: OK\n")
}

func TestAnOutputWithoutReaderEndsTheRunInGoodOrder(t *testing.T) {
	r := startWorkers(t, "1s")
	require.NoError(t, r.out.Close())
	var exit *exec.ExitError
	require.ErrorAs(t, r.end(t), &exit)
	assert.Equal(t, 1, exit.ExitCode(), "%v", exit)
	assert.Empty(t, r.stderr.String())
	r.requireNoNode(t)
}

func TestAnOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the test needs a file that is always full, as Linux has it")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, args := range [][]string{{"demo"}, {"demo", "-h"}, {"help"}, {"run", "-h"}} {
		cmd := program(t, args...)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &stderr
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &exit, "%q", args)
		assert.Equal(t, 1, exit.ExitCode())
		assert.Contains(t, stderr.String(), "no space left on device")
	}
}

func TestAProcessThatFailsEndsTheRun(t *testing.T) {
	r := startWorkers(t, "10m")
	require.NoError(t, syscall.Kill(r.pids["worker-3"], syscall.SIGKILL))
	var exit *exec.ExitError
	require.ErrorAs(t, r.end(t), &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Contains(t, r.printed.String(), "Error: worker-3: signal: killed\nVERDICT: no rule was broken, but there was an error\n")
}

func TestAnInterruptDuringAPauseEndsAllProcesses(t *testing.T) {
	r := startFault(t, "pause", "PAUSED")
	require.NoError(t, r.Process.Signal(os.Interrupt))
	require.NoError(t, r.end(t), "%s%s", &r.printed, &r.stderr)
	assert.Contains(t, r.printed.String(), "VERDICT: OK as far as it went, interrupted")
	r.requireNoNode(t)
}

func TestNoProcessOutlivesAKilledParent(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) *run{
		"waiting": func(t *testing.T) *run { return startWorkers(t, "10m") },
		"paused": func(t *testing.T) *run {
			r := startFault(t, "pause", "PAUSED")
			if runtime.GOOS == "linux" {
				require.Eventually(t, func() bool { return isIn('T', r.pids["worker-1"]) }, waitLimit, time.Millisecond)
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			require.NoError(t, r.Process.Kill())
			_ = r.Wait() // killed
			r.requireNoFile(t)
			for worker, pid := range r.pids {
				require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isIn('Z', pid) },
					waitLimit, 5*time.Millisecond, "the process of %s is left", worker)
			}
		})
	}
}

// isIn reports whether a process has the state, such as T for stopped.
func isIn(state byte, pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return bytes.Contains(stat, []byte{')', ' ', state, ' '})
}

func TestAChildHasNoDataSourceNameInItsArgumentsOrEnvironment(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the test reads arguments and environments in /proc, as Linux shows them")
	}
	r := startWorkers(t, "10m")
	for _, pid := range r.pids {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
			require.NoError(t, err)
			assert.NotEmpty(t, text)
			assert.False(t, bytes.Contains(text, []byte(r.dir)), file) // assert.NotContains would print the whole environment
		}
	}
	require.NoError(t, r.Process.Signal(os.Interrupt))
	require.NoError(t, r.end(t), "%s%s", &r.printed, &r.stderr)
}
