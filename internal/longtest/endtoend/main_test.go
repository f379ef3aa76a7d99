package endtoend_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/recipes"
)

// childVariable turns the test binary into a client process. Its value is the
// data source name.
const childVariable = "ENDTOEND_CHILD_DSN"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childVariable); dsn != "" {
		os.Exit(childMain(dsn))
	}
	if dsn := os.Getenv(candidateVariable); dsn != "" {
		os.Exit(candidateMain(dsn))
	}
	os.Exit(leakcheck.After(zktest.Main(m)))
}

// childMain is the main function of a child process. It acquires the lock "q"
// and prints each step. It exits at the end of its input, and thus even if the
// parent dies.
func childMain(dsn string) int {
	client, err := dlock.Open("zk", dsn, dlock.WithHostname("child"), dlock.WithTrace(&recipes.Trace{
		Queued:  func(_ context.Context, i recipes.QueuedInfo) { fmt.Println("queued", i.Place.Name) },
		Waiting: func(_ context.Context, i recipes.WaitingInfo) { fmt.Println("waiting", i.Node) },
	}))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	go func() {
		lock, err := client.RWMutex("q").Lock(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("held", lock.Node())
	}()
	io.Copy(io.Discard, os.Stdin)
	return 0
}

type child struct {
	w     *fixture
	cmd   *exec.Cmd
	lines chan string
}

func (w *fixture) child(sessionTimeout time.Duration) *child {
	w.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+w.dsn(w.server.Addr(), "session_timeout="+sessionTimeout.String()))
	in, err := cmd.StdinPipe()
	require.NoError(w, err)
	out, err := cmd.StdoutPipe()
	require.NoError(w, err)
	require.NoError(w, cmd.Start())
	c := &child{w: w, cmd: cmd, lines: make(chan string, 100)}
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	w.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return c
}

// awaitLine waits for a line that begins with word, and returns the rest.
func (c *child) awaitLine(word string) string {
	c.w.Helper()
	timeout := time.After(bound)
	for {
		select {
		case line, ok := <-c.lines:
			require.True(c.w, ok, "the child has gone")
			if rest, found := strings.CutPrefix(line, word+" "); found {
				return rest
			}
		case <-timeout:
			require.FailNow(c.w, "the child does not say "+word)
		}
	}
}

func (c *child) kill() {
	c.w.Helper()
	require.NoError(c.w, c.cmd.Process.Kill())
}
