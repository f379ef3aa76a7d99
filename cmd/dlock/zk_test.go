package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// waitLimit is far longer than any wait in a passing test.
const waitLimit = 2 * time.Minute

// program returns a command that runs dlock in a child process.
func program(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), runProgram+"=yes")
	return cmd
}

func contenders(t *testing.T, server *zktest.Server, root string) (names []string) {
	for _, p := range server.Tree(t, root) {
		if _, _, ok := driver.ParseName(path.Base(p)); ok {
			names = append(names, p)
		}
	}
	return names
}

// hold takes the lock, so that all other contenders wait until release is
// called.
func hold(t *testing.T, server *zktest.Server, chroot, lock string) (release func()) {
	c, err := dlock.Open("zk", "zk://"+server.Addr()+chroot)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	l, err := c.RWMutex(lock).Lock(t.Context())
	require.NoError(t, err)
	return func() { require.NoError(t, l.Unlock()) }
}

func TestProcessesKeepTheRulesOnOneLockInZooKeeper(t *testing.T) {
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	release := hold(t, server, chroot, "shop/till")
	cmd := program(t, "demo", "-driver", "zk", "-dsn", "zk://"+server.Addr()+chroot+"?session_timeout=5s", "-lock", "shop/till", "-workers", "12", "-hold", "50ms")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return len(contenders(t, server, chroot)) == 1+12 }, waitLimit, 20*time.Millisecond, "all workers wait")
	release()
	require.NoError(t, cmd.Wait(), "%s", &out)
	assert.Contains(t, out.String(), "VERDICT: OK\n")
	assert.Equal(t, 12, strings.Count(out.String(), "  releases\n"))
	assert.Empty(t, contenders(t, server, chroot))
}

// queuedLine matches a line of the demo that says that a worker holds the lock
// or waits for it.
var queuedLine = regexp.MustCompile(`^ *[0-9.]+s  (\S+) [RW]  (?:holds|waits) `)

func TestAnInterruptLeavesNoNodeInZooKeeper(t *testing.T) {
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	var errors bytes.Buffer
	cmd := program(t, "demo", "-driver", "zk", "-dsn", "zk://"+server.Addr()+chroot+"?session_timeout=5m",
		"-workers", "6", "-hold", "10m")
	cmd.Stderr = &errors
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	var out strings.Builder
	queued := make(map[string]bool) // names of workers
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		fmt.Fprintln(&out, lines.Text())
		if m := queuedLine.FindStringSubmatch(lines.Text()); m != nil {
			queued[m[1]] = true
		}
		if len(queued) == 6 {
			clear(queued)
			assert.Len(t, contenders(t, server, chroot), 6)
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	require.NoError(t, cmd.Wait(), "%s%s", &out, &errors)
	assert.Contains(t, out.String(), "VERDICT: OK as far as it went, interrupted\n")
	assert.Equal(t, 6, strings.Count(out.String(), "  leaves  ")+strings.Count(out.String(), "  releases\n"))
	assert.Empty(t, errors.String())
	assert.Empty(t, contenders(t, server, chroot))
}

func TestAnUnreachableZooKeeperIsAClearError(t *testing.T) {
	port, err := testenv.FreePort() // no process listens on it
	require.NoError(t, err)
	cmd := program(t, "demo", "-driver", "zk", "-dsn", "zk://"+testenv.Loopback(port)+"?connect_timeout=500ms")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	assert.Equal(t, 1, exit.ExitCode())
	assert.Regexp(t, `(?m)^dlock demo: worker-\d\d: .*connection refused`, string(out))
	assert.NotContains(t, string(out), "VERDICT")
}
