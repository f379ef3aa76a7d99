package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/command"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zktest"
)

// runProgram is an environment variable that makes the test binary run dlock
// instead of the tests.
const runProgram = "DLOCK_TEST_RUN_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(runProgram) != "" {
		main()
	}
	os.Setenv(runProgram, "yes") // the demo starts its child processes from this binary
	os.Exit(m.Run())
}

// stores maps the name of each driver to a function that starts a server and
// returns its data source name. After a process is killed, its sessions end
// within 5 s, or at once with SQLite.
var stores = map[string]func(t *testing.T) (dsn string){
	"etcd": func(t *testing.T) string { return "etcd://" + etcdtest.Start(t).Addr() + "?session_timeout=5s" },
	"mysql": func(t *testing.T) string {
		server := mysqltest.Start(t)
		return server.DSN(server.Database(), "session_timeout=5s")
	},
	"postgres": func(t *testing.T) string { return pgtest.Start(t).DSN("session_timeout=5s") },
	"redis": func(t *testing.T) string {
		return "redis://" + redistest.Start(t, redistest.Durable()).Addr() + "?empty_is_new=true&session_timeout=5s"
	},
	"sqlite": func(t *testing.T) string { return filepath.Join(t.TempDir(), "locks.db") },
	"zk":     func(t *testing.T) string { return "zk://" + zktest.Start(t).Addr() + "/?session_timeout=5s" },
}

// The demo command starts a process for each worker. With -v, the test prints
// the output of the commands.
func TestTheProgramsRunOnEveryStore(t *testing.T) {
	for _, name := range dlock.Drivers() {
		if name == "mem" {
			continue // its store exists only within a process
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := stores[name]
			if open == nil {
				t.Fatal("the table of this test has no store for this driver")
			}
			dsn := open(t)
			out, err := program(t, "run", "-driver", name, "-dsn", dsn, "backup", "--", "sh", "-c", `echo "$DLOCK_LOCK, $DLOCK_TOKEN"; exit 3`)
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || !regexp.MustCompile(`(?m)^backup, [1-9]\d*\n$`).Match(out) {
				t.Errorf("dlock run: %v: %s", err, out)
			}
			out, err = program(t, "demo", "-driver", name, "-dsn", dsn, "-hold", "20ms")
			t.Logf("%s", out)
			if err != nil {
				t.Error(err)
			}
			for _, line := range []string{
				`.* worker-01 +starts    as process \d+`, `.* worker-01 R  holds .*`, `.* worker-10 W  holds .*`, `VERDICT: OK`,
			} {
				if !regexp.MustCompile(`(?m)^` + line + `$`).Match(out) {
					t.Errorf("the output has no line of the form %s", line)
				}
			}
			doctor(t, name, dsn)
		})
	}
}

// The demo pauses a process, cuts it off from the store, and kills it. With -v,
// the test prints the demo's output.
func TestTheDemoShowsEachFaultOnEveryStore(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for sessions to time out")
	}
	for _, driver := range dlock.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := ""
			if open := stores[driver]; open != nil {
				dsn = open(t)
			}
			for fault, refused := range map[string]bool{"pause": false, "cut": driver == "sqlite", "kill": driver == "mem"} {
				t.Run(fault, func(t *testing.T) {
					t.Parallel()
					args := []string{"demo", "-driver", driver, "-fault", fault, "-lock", fault, "-hold", "200ms"}
					if dsn != "" {
						args = append(args, "-dsn", dsn)
					}
					out, err := program(t, args...)
					t.Logf("%s", out)
					if refused {
						if err == nil || !strings.Contains(string(out), "dlock demo: -fault "+fault+": ") {
							t.Error("the demo does not say why it cannot show this fault")
						}
						return
					}
					if err != nil {
						t.Error(err)
					}
					for _, line := range []string{
						` .* REFUSED   0 \+ 1 = 1 with token \d+: the counter has seen token \d+`,
						`  ok        late  .*`,
						`VERDICT: OK`,
					} {
						if !regexp.MustCompile(`(?m)^` + line + `$`).Match(out) {
							t.Errorf("the output has no line of the form %s", line)
						}
					}
				})
			}
		})
	}
}

// doctor runs "dlock doctor" and requires lines about the session, a lock and
// the server, without any problem. Warnings are allowed, because it warns of
// settings of test servers.
func doctor(t *testing.T, name, dsn string) {
	out, _ := program(t, "doctor", "-driver", name, "-dsn", dsn)
	t.Logf("%s", out)
	for _, line := range []string{"ok +began session", "(ok|warning) +the session timeout is", "ok +took and released a lock", "(ok|unknown|warning) +.* (nodes|sequences|more)$"} {
		if !regexp.MustCompile(`(?m)^` + line).Match(out) {
			t.Errorf("no line of the form %s", line)
		}
	}
	if strings.Contains(string(out), "problem ") {
		t.Error("there is a problem")
	}
}

func program(t *testing.T, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), runProgram+"=yes")
	return cmd.CombinedOutput()
}

func TestTheProgramLinksNoTestFramework(t *testing.T) {
	deps, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := regexp.MustCompile(`(?m)^testing$|dlocktest|testenv|testify`)
	if found := linked.FindAll(deps, -1); len(found) > 0 || !bytes.Contains(deps, []byte("dlock/internal/command")) {
		t.Errorf("linked: %q", found)
	}
}

func TestTheHelpNamesEveryDriver(t *testing.T) {
	var out bytes.Buffer
	if status := command.Run(t.Context(), []string{"demo", "-h"}, &out, &out); status != 0 {
		t.Fatal(out.String())
	}
	for _, driver := range dlock.Drivers() {
		if !strings.Contains(out.String(), "\n  "+driver+" ") {
			t.Errorf("the help does not name the driver %s:\n%s", driver, &out)
		}
	}
}

// Each driver gets the data source names of all drivers, most of which are
// invalid for it, and must not repeat the password in an error.
func TestNoMistakeOnTheCommandLineRepeatsAPassword(t *testing.T) {
	t.Chdir(t.TempDir()) // SQLite takes some of the data source names for file names
	for _, dsn := range []string{
		"redis://alice:geheim@127.0.0.1:1/x", "etcd://alice:geheim@127.0.0.1:1?colour=red", "zk://alice:geheim@127.0.0.1:1/?colour=red",
		"postgres://alice:geheim@127.0.0.1:1/db?colour=red", "postgres://127.0.0.1:1/db?password=geheim&colour=red",
		"host=127.0.0.1 port=x user=alice password=geheim", "alice:geheim@tcp(127.0.0.1:1)/db?colour=red", "file:x?password=geheim",
	} {
		for _, driver := range slices.Concat(dlock.Drivers(), []string{dsn}) {
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // most of them cannot be reached
			args := []string{"demo", "-driver", driver, "-dsn", dsn, "-workers", "1", "-lock", "q"}
			status := command.Run(ctx, args, &out, &out)
			cancel()
			if status == 0 && driver != "mem" && driver != "sqlite" {
				t.Errorf("%s accepts %s: %s", driver, dsn, &out)
			}
			if strings.Contains(out.String(), "geheim") {
				t.Errorf("%s, %s: %s", driver, dsn, &out)
			}
		}
	}
}

// SQLite takes any data source name for a file name, which its errors quote.
// Even then, dlock must hide the password.
func TestNoErrorRepeatsAPasswordOfTheEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("DLOCK_DSN", "alice:geheim@127.0.0.1:1/x")
	out, err := program(t, "demo", "-driver", "sqlite")
	if err == nil || !strings.Contains(string(out), "alice:...@127.0.0.1") || strings.Contains(string(out), "geheim") {
		t.Errorf("%s", out)
	}
}
