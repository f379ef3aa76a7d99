//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/redistest"
)

// runIn runs dlock with its own home directory and without a configured store.
func runIn(t *testing.T, home string, args ...string) (status int, output string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), runProgram+"=yes", "HOME="+home, "XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "DLOCK_DRIVER=", "DLOCK_DSN=", "DLOCK_CONFIG=", "DLOCK_REQUIRE=")
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestRunWithoutAStoreUsesAFileOfTheUser(t *testing.T) {
	home := t.TempDir()
	status, out := runIn(t, home, "run", "backup", "--", "sh", "-c", `echo "$DLOCK_LOCK $DLOCK_TOKEN"; "$0" run -n -v backup -- echo wrong; echo $?; exit 5`, os.Args[0])
	assert.Equal(t, 5, status)
	assert.Regexp(t, `(?s)^backup 1\n.*\n121\n$`, out)
	assert.NotContains(t, out, "wrong\n")
	var found []string
	_ = filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if d.Name() == "locks.db" {
			found = append(found, path)
		}
		return err
	})
	require.Len(t, found, 1)
	assert.Contains(t, out, "dlock run: the store is sqlite "+found[0]+"\n")
}

func TestAPathIsAStoreWithoutADriver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	status, out := runIn(t, t.TempDir(), "run", "-dsn", path, "l", "--", "true")
	assert.Zero(t, status, out)
	assert.FileExists(t, path)
	status, out = runIn(t, t.TempDir(), "run", "-dsn", filepath.Join(t.TempDir(), "missing", "locks.db"), "l", "--", "true")
	assert.Equal(t, 122, status)
	assert.Contains(t, out, "not run")
}

func startThenKill(t *testing.T, file string, args ...string) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runProgram+"=yes")
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return exists(file) }, time.Minute, 10*time.Millisecond)
	time.AfterFunc(100*time.Millisecond, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { _ = cmd.Wait() })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A child process must hold the lock, because SQLite frees it when dlock dies.
func TestAKilledDlockEndsItsCommandBeforeSQLiteFreesTheLock(t *testing.T) {
	dir := t.TempDir()
	ready, marker := filepath.Join(dir, "ready"), "DLOCK_TEST_TREE="+dir
	args := []string{"run", "-dsn", filepath.Join(dir, "locks.db"), "l", "--"}
	startThenKill(t, ready, append(args, "env", marker, "sh", "-c", `trap "" TERM; touch "$0"; while :; do sleep 1; done`, ready)...)
	_, out := runIn(t, dir, append(args, "sh", "-c", `grep -qsz "^`+marker+`$" /proc/[0-9]*/environ && echo overlap || echo alone`)...)
	assert.Equal(t, "alone\n", out)
}

func TestOncePerRunsACommandOnce(t *testing.T) {
	home := t.TempDir()
	last := func(status int, text, json string) {
		t.Helper()
		got, out := runIn(t, home, "last", "job")
		assert.Equal(t, status, got)
		assert.Regexp(t, text, out)
		_, out = runIn(t, home, "last", "-json", "job")
		assert.Regexp(t, json, out)
	}
	const at, node = `"\d{4}-[^"]*Z"`, `"\S+-W-\d+"`
	last(1, "^dlock last: the store is sqlite .*\njob has never run\n$", `^{"lock":"job"}`)
	for _, c := range []struct {
		args   []string
		status int
		out    string
	}{
		{[]string{"job", "--", "sh", "-c", "echo failed; exit 3"}, 3, "^failed\n$"},
		{[]string{"job", "--", "echo", "ran"}, 0, "^ran\n$"},
		{[]string{"job", "--", "echo", "again"}, 0, "^$"},
		{[]string{"-v", "job", "--", "echo", "again"}, 0, "\ndlock run: not run: job succeeded last at "},
		{[]string{"-n", "job", "--", "true"}, 2, "leave out -n"},
	} {
		status, out := runIn(t, home, append([]string{"run", "-once-per", "1h"}, c.args...)...)
		assert.Equal(t, c.status, status, "%v", c.args)
		assert.Regexp(t, c.out, out, "%v", c.args)
		if status == 3 {
			last(0, `\njob failed with exit status 3 on \S+ at \S+Z, \d\S*s ago; it never succeeded\n$`, `^{"lock":"job","failed":`+at+`,"status":3,"node":`+node+`}`)
		}
	}
	last(0, `\njob succeeded last at \S+Z, \d\S*s ago, with exit status 0 on \S+\n$`, `^{"lock":"job","succeeded":`+at+`,"status":0,"node":`+node+`}`)
	status, _ := runIn(t, home, "run", "-once-per", "1ns", "job", "--", "sh", "-c", "exit 4")
	assert.Equal(t, 4, status)
	last(0, "\njob failed with exit status 4 .*; it had succeeded at ", `,"succeeded":`+at+`,"failed":`+at+`,"status":4,`)
	status, _ = runIn(t, home, "run", "-once-per", "1h", "job", "--", "sh", "-c", "exit 5")
	assert.Equal(t, 0, status, "a failure leaves the time of the last success")
}

func TestACommandThatIsKilledIsRunByTheNext(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	args := func(script string) []string {
		return []string{"run", "-dsn", filepath.Join(dir, "locks.db"), "-once-per", "1h", "job", "--", "sh", "-c", script, ready}
	}
	startThenKill(t, ready, args(`touch "$0"; sleep 600`)...)
	for _, want := range []string{"ran\n", ""} {
		status, out := runIn(t, dir, args("echo ran")...)
		assert.Zero(t, status)
		assert.Equal(t, want, out)
	}
}

// A restarted server grants nothing for a while, so SIGTERM is early enough.
func TestARestartOfTheStoreEndsTheCommandBySIGTERM(t *testing.T) {
	for driver, open := range map[string]func() (dsn string, restart func()){
		"redis": func() (string, func()) {
			server := redistest.Start(t, redistest.Durable())
			return "redis://" + server.Addr() + "?empty_is_new=true&session_timeout=20s", server.Restart
		},
		"mysql": func() (string, func()) {
			server := mysqltest.Start(t)
			return server.DSN(server.Database(), "empty_is_new=true&session_timeout=20s"), server.Restart
		},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn, restart := open()
			ready := filepath.Join(t.TempDir(), "ready")
			go func() {
				for !exists(ready) && t.Context().Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
				restart()
			}()
			status, out := runIn(t, t.TempDir(), "run", "-driver", driver, "-dsn", dsn, "l", "--", "sh", "-c",
				`trap 'echo ended; exit' TERM; touch "$0"; while :; do sleep 0.05; done`, ready)
			assert.Equal(t, 123, status)
			assert.Contains(t, out, "\nended\n")
			assert.Contains(t, out, "may have lost data")
		})
	}
}

// A new Redis grants no lock for one session timeout.
func TestAStoreThatIsPausedIsToldOnce(t *testing.T) {
	t.Parallel()
	dsn := "redis://" + redistest.Start(t, redistest.Durable()).Addr() + "?session_timeout=6s"
	_, out := runIn(t, t.TempDir(), "run", "-driver", "redis", "-dsn", dsn, "l", "--", "true")
	assert.Regexp(t, `^[^\n]*no lock is granted until[^\n]*\n$`, out)
}
