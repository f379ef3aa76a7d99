package main

import (
	"bytes"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/internal/command"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/zktest"
)

// runProgram is an environment variable that makes the test binary run the
// program instead of the tests.
const runProgram = "DLOCK_TEST_RUN_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(runProgram) != "" {
		main()
	}
	if signal.Ignored(syscall.SIGHUP) { // under nohup; what is caught, child processes do not ignore
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Setenv(runProgram, "yes") // the demo starts its child processes from this binary
	os.Exit(leakcheck.After(zktest.Main(m)))
}

// safeBuffer collects the output of a process, which a test may read while the process
// still runs.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		{nil, 2, "", "Usage: dlock <command>"},
		{[]string{"help"}, 0, "Usage: dlock <command>", ""},
		{[]string{"-h"}, 0, "Usage: dlock <command>", ""},
		{[]string{"--help"}, 0, "Usage: dlock <command>", ""},
		{[]string{"help", "demo"}, 0, "Usage: dlock demo [flags]", ""},
		{[]string{"help", "\x1b"}, 2, "", `no help on ["\x1b"]`},
		{[]string{"help", "demo", "more"}, 2, "", `no help on`},
		{[]string{"frob"}, 2, "", `unknown command "frob"`},
		{[]string{"demo", "-h"}, 0, "Usage: dlock demo [flags]", ""},
		{[]string{"run", "-h"}, 0, "Usage: dlock run [flags] NAME -- command", ""},
		{[]string{"help", "run"}, 0, "  121  not run: another holder", ""},
		{[]string{"run", "-frob", "l", "--", "true"}, 2, "", "Run 'dlock run -h' for help"},
		{[]string{"ls", "-config", os.DevNull}, 2, "", "names no store"},
		{[]string{"demo", "-frob"}, 2, "", "Run 'dlock demo -h' for help"},
		{[]string{"demo", "-driver", "zk", "-dsn", "zk://"}, 2, "", "zkdriver: dsn"},
		{[]string{"demo", "-workers", "2"}, 0, "VERDICT: OK", ""},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, c.status, command.Run(t.Context(), c.args, &stdout, &stderr), "%q", c.args)
		assert.Contains(t, stdout.String(), c.stdout)
		assert.Contains(t, stderr.String(), c.stderr)
		if c.stderr == "" {
			assert.Empty(t, stderr.String())
		}
	}
}
