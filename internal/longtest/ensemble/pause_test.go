//go:build unix

package ensemble

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

func TestProcessPausedPastItsSessionLearnsTheLossBeforeItDoesAnything(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	c := startChild(t, dsn(chroot+"?session_timeout=2s", server.Addr()))
	require.Equal(t, "held", c.readLine(t))
	c.order(t, "look")
	require.Equal(t, "in time", c.readLine(t))

	require.NoError(t, c.signal(syscall.SIGSTOP))
	began := time.Now()
	next := open(t, dsn(chroot, server.Addr()))
	l, err := next.RWMutex("q").Lock(within(t))
	require.NoError(t, err)
	t.Logf("1. %v after it was stopped, another client was granted the lock", time.Since(began).Round(time.Millisecond))
	c.order(t, "look")
	require.NoError(t, c.signal(syscall.SIGCONT))
	t.Logf("2. the process was continued")
	said := c.readLine(t)
	t.Logf("3. its first check of the lock: %s", said)
	require.True(t, strings.HasPrefix(said, "lost: "), said)
	require.NoError(t, l.Err(), "the other client held the lock during that check")
	require.NoError(t, l.Unlock())
}

type childProcess struct {
	cmd     *exec.Cmd
	orders  io.Writer
	answers *bufio.Scanner
}

func startChild(t testing.TB, dsn string) *childProcess {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := &childProcess{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childVariable+"="+dsn)
	c.cmd.Stderr = os.Stderr
	orders, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	answers, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	c.orders, c.answers = orders, bufio.NewScanner(answers)
	return c
}

func (c *childProcess) signal(s syscall.Signal) error { return c.cmd.Process.Signal(s) }

func (c *childProcess) order(t testing.TB, order string) {
	t.Helper()
	_, err := fmt.Fprintln(c.orders, order)
	require.NoError(t, err)
}

func (c *childProcess) readLine(t testing.TB) string {
	t.Helper()
	said := make(chan string, 1)
	go func() {
		c.answers.Scan()
		said <- c.answers.Text()
	}()
	select {
	case line := <-said:
		return line
	case <-time.After(bound):
		t.Fatal("the child prints nothing")
		return ""
	}
}
