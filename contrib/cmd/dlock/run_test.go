//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/redistest"
)

// runIn runs dlock with its own home directory and without a configured store.
func runIn(t *testing.T, home string, args ...string) (*exec.Cmd, []byte) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), runProgram+"=yes", "HOME="+home, "XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "DLOCK_DRIVER=", "DLOCK_DSN=", "DLOCK_CONFIG=", "DLOCK_REQUIRE=")
	out, _ := cmd.CombinedOutput()
	return cmd, out
}

func TestRunWithoutAStoreUsesAFileOfTheUser(t *testing.T) {
	home := t.TempDir()
	cmd, out := runIn(t, home, "run", "backup", "--", "sh", "-c", `echo "$DLOCK_LOCK $DLOCK_TOKEN"; "$0" run -n -v backup -- echo wrong; echo $?; exit 5`, os.Args[0])
	if got := string(out); cmd.ProcessState.ExitCode() != 5 || !strings.HasPrefix(got, "backup 1\n") || !strings.HasSuffix(got, "\n121\n") || strings.Contains(got, "wrong\n") {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
	var found []string
	_ = filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if d.Name() == "locks.db" {
			found = append(found, path)
		}
		return err
	})
	if len(found) != 1 || !strings.Contains(string(out), "dlock run: the store is sqlite "+found[0]+"\n") {
		t.Errorf("files: %q: %s", found, out)
	}
}

func TestAPathIsAStoreWithoutADriver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	if cmd, out := runIn(t, t.TempDir(), "run", "-dsn", path, "l", "--", "true"); !cmd.ProcessState.Success() {
		t.Errorf("%s", out)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	cmd, out := runIn(t, t.TempDir(), "run", "-dsn", filepath.Join(t.TempDir(), "missing", "locks.db"), "l", "--", "true")
	if cmd.ProcessState.ExitCode() != 122 || !strings.Contains(string(out), "not run") {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}

// SQLite frees a lock as soon as its process is killed. To keep the lock until
// the command has ended, dlock must hold the lock in a separate process, which
// survives when dlock is killed.
func TestAKilledDlockEndsItsCommandBeforeSQLiteFreesTheLock(t *testing.T) {
	dir := t.TempDir()
	args := []string{"run", "-dsn", filepath.Join(dir, "locks.db"), "l", "--"}
	marker := "DLOCK_TEST_TREE=" + dir
	first := exec.Command(os.Args[0], append(args, "env", marker, "sh", "-c", `trap "" TERM; touch "$0"; while :; do sleep 1; done`, filepath.Join(dir, "ready"))...)
	first.Env = append(os.Environ(), runProgram+"=yes")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	next := exec.Command(os.Args[0], append(args, "sh", "-c", `grep -qsz "^`+marker+`$" /proc/[0-9]*/environ && echo overlap || echo alone`)...)
	next.Env = first.Env
	time.AfterFunc(100*time.Millisecond, func() { _ = first.Process.Kill() })
	out, err := next.CombinedOutput()
	if err != nil || string(out) != "alone\n" {
		t.Errorf("%v: %s", err, out)
	}
	_ = first.Wait()
}

func TestOncePerRunsACommandOnce(t *testing.T) {
	home := t.TempDir()
	once := func(flags ...string) (string, int) {
		cmd, out := runIn(t, home, append([]string{"run", "-once-per", "1h"}, flags...)...)
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, status := once("job", "--", "sh", "-c", "echo failed; exit 3"); status != 3 || out != "failed\n" {
		t.Errorf("status %d: %s", status, out)
	}
	if out, status := once("job", "--", "echo", "ran"); status != 0 || out != "ran\n" {
		t.Errorf("status %d after a run that failed: %s", status, out)
	}
	if out, status := once("job", "--", "echo", "again"); status != 0 || out != "" {
		t.Errorf("status %d after a run: %s", status, out)
	}
	if out, status := once("-v", "job", "--", "echo", "again"); status != 0 || !strings.Contains(out, "\ndlock run: not run: job has run for ") {
		t.Errorf("status %d after a run, with -v: %s", status, out)
	}
	if out, status := once("-n", "job", "--", "true"); status != 2 || !strings.Contains(out, "leave out -n") {
		t.Errorf("status %d with -n: %s", status, out)
	}
}

func TestACommandThatIsKilledIsRunByTheNext(t *testing.T) {
	dir := t.TempDir()
	args := func(script string) []string {
		return []string{"run", "-dsn", filepath.Join(dir, "locks.db"), "-once-per", "1h", "job", "--", "sh", "-c", script, filepath.Join(dir, "ready")}
	}
	first := exec.Command(os.Args[0], args(`touch "$0"; sleep 600`)...)
	first.Env = append(os.Environ(), runProgram+"=yes")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = first.Process.Kill() })
	for _, want := range []string{"ran\n", ""} {
		if cmd, out := runIn(t, dir, args("echo ran")...); string(out) != want || !cmd.ProcessState.Success() {
			t.Errorf("%v: %q, expected %q", cmd.ProcessState, out, want)
		}
	}
	_ = first.Wait()
}

// A server that has restarted grants nobody the lock for a while. So the command
// has time to end by itself.
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
				for {
					if _, err := os.Stat(ready); err == nil || t.Context().Err() != nil {
						restart()
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
			cmd, out := runIn(t, t.TempDir(), "run", "-driver", driver, "-dsn", dsn, "l", "--", "sh", "-c",
				`trap 'echo ended; exit' TERM; touch "$0"; while :; do sleep 0.05; done`, ready)
			if cmd.ProcessState.ExitCode() != 123 || !strings.Contains(string(out), "\nended\n") || !strings.Contains(string(out), "may have lost data") {
				t.Errorf("%v: %s", cmd.ProcessState, out)
			}
		})
	}
}

// A fresh Redis grants no lock for one session timeout.
func TestAStoreThatIsPausedIsToldOnce(t *testing.T) {
	t.Parallel()
	dsn := "redis://" + redistest.Start(t, redistest.Durable()).Addr() + "?session_timeout=6s"
	_, out := runIn(t, t.TempDir(), "run", "-driver", "redis", "-dsn", dsn, "l", "--", "true")
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); len(lines) != 1 || !strings.Contains(lines[0], "no lock is granted until") {
		t.Errorf("%s", out)
	}
}
