package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/internal/command"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

// runProgram is an environment variable that turns the test binary into the
// program.
const runProgram = "DLOCK_TEST_RUN_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(runProgram) != "" {
		main()
	}
	if signal.Ignored(syscall.SIGHUP) { // or child processes would ignore SIGHUP, too
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Setenv(runProgram, "yes") // for the demo's child processes
	os.Exit(leakcheck.After(m.Run()))
}

// waitLimit is far longer than any wait in a passing test.
const waitLimit = 2 * time.Minute

func program(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), runProgram+"=yes")
	return cmd
}

// safeBuffer collects the output of a process, even while a test reads it.
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
		{[]string{"demo", "-driver", "zk", "-dsn", "zk://alice:ge=heim@127.0.0.1:1/x?connect_timeout=500ms"}, 1, "", "connection refused"},
		{[]string{"demo", "-workers", "2"}, 0, "VERDICT: OK", ""},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, c.status, command.Run(t.Context(), c.args, &stdout, &stderr), "%q", c.args)
		assert.Contains(t, stdout.String(), c.stdout)
		assert.Contains(t, stderr.String(), c.stderr)
		assert.NotContains(t, stdout.String()+stderr.String(), "heim")
		if c.stderr == "" {
			assert.Empty(t, stderr.String())
		}
	}
}

func TestNoMistakeOnTheCommandLineRepeatsAPassword(t *testing.T) {
	const dsn = "zk://alice:ge=heim@127.0.0.1:1/x"
	for _, args := range [][]string{
		{dsn}, {"help", dsn}, {"help", "demo", dsn}, {"demo", dsn}, {"demo", "-" + dsn}, {"demo", "-dsn:" + dsn}, {"demo", "-dsn" + dsn},
		{"demo", "-workers", dsn}, {"demo", "-workers=" + dsn}, {"demo", "-hold", dsn}, {"demo", "-fault=" + dsn},
		{"demo", "-driver", dsn}, {"demo", "-driver", dsn, "-dsn", dsn}, {"demo", "-driver", "mem", "-dsn", dsn},
		{"demo", "-dsn", "alice:ge=heim@h?x=y"}, {"demo", "-lock", dsn},
		{"demo", "-driver", "zk", "-dsn", dsn + "?acl=x"}, {"demo", "-driver", "zk", "-dsn", dsn + "@"}, {"demo", "-driver", "zk", "-dsn", "x" + dsn},
		{"run", dsn}, {"run", "-" + dsn}, {"run", "-w", dsn, "l", "true"}, {"run", "l", "-" + dsn}, {"run", dsn, "--", "no-such-command"},
		{"run", "-driver", dsn, "l", "true"}, {"run", "-w", "1s", "-dsn", dsn + "?connect_timeout=200ms", "l", "true"}, {"run", "-driver", "zk", "-dsn", dsn + "?acl=x", "l", "true"},
		{"run", "l", "--", dsn}, {"run", "-config", dsn, "l", "true"},
	} {
		var stdout, stderr bytes.Buffer
		if args[0] == "run" { // in its own process, all of whose children it reaps
			cmd := program(t, args...)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			assert.Error(t, cmd.Run(), "%q", args)
		} else {
			assert.NotZero(t, command.Run(t.Context(), args, &stdout, &stderr), "%q", args)
		}
		assert.NotEmpty(t, stderr.String(), "%q", args)
		assert.NotContains(t, stdout.String()+stderr.String(), "heim", "%q", args)
		assert.NotContains(t, stdout.String()+stderr.String(), "alice:ge", "%q", args)
	}
}
