package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/command"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/natstest"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zktest"
)

// runProgram makes the test binary run dlock instead of the tests.
const runProgram = "DLOCK_TEST_RUN_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(runProgram) != "" {
		main()
	}
	os.Setenv(runProgram, "yes") // the demo starts children from this binary
	os.Exit(m.Run())
}

// stores maps a driver to a function that starts its server.
var stores = map[string]func(t *testing.T) (dsn string){
	"etcd": func(t *testing.T) string { return "etcd://" + etcdtest.Start(t).Addr() + "?session_timeout=5s" },
	"mysql": func(t *testing.T) string {
		server := mysqltest.Start(t)
		return server.DSN(server.Database(), "session_timeout=5s")
	},
	"nats": func(t *testing.T) string {
		return "nats://" + natstest.Start(t).Addr() + "?empty_is_new=true&session_timeout=5s"
	},
	"postgres": func(t *testing.T) string { return pgtest.Start(t).DSN("session_timeout=5s") },
	"redis": func(t *testing.T) string {
		return "redis://" + redistest.Start(t, redistest.Durable()).Addr() + "?empty_is_new=true&session_timeout=5s"
	},
	"sqlite": func(t *testing.T) string { return filepath.Join(t.TempDir(), "locks.db?session_timeout=5s") },
	"zk":     func(t *testing.T) string { return "zk://" + zktest.Start(t).Addr() + "/?session_timeout=5s" },
}

func TestTheProgramsRunOnEveryStore(t *testing.T) {
	for _, name := range dlock.Drivers() {
		if name == "mem" {
			continue // its store exists only within a process
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := stores[name]
			require.NotNil(t, open, "the table of this test has no store for this driver")
			dsn := open(t)
			out, err := program(t, "run", "-driver", name, "-dsn", dsn, "backup", "--", "sh", "-c", `echo "$DLOCK_LOCK, $DLOCK_TOKEN"; exit 3`)
			assert.EqualError(t, err, "exit status 3")
			assert.Regexp(t, `(?m)^backup, [1-9]\d*\n$`, string(out))
			out, err = program(t, "demo", "-driver", name, "-dsn", dsn, "-hold", "20ms")
			t.Logf("%s", out)
			assert.NoError(t, err)
			for _, line := range []string{
				`.* worker-01 +starts    as process \d+`, `.* worker-01 R  holds .*`, `.* worker-10 W  holds .*`, `VERDICT: OK`,
			} {
				assert.Regexp(t, `(?m)^`+line+`$`, string(out))
			}
			doctor(t, name, dsn)
		})
	}
}

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
						assert.Error(t, err)
						assert.Contains(t, string(out), "dlock demo: -fault "+fault+": ")
						return
					}
					assert.NoError(t, err)
					for _, line := range []string{
						` .* REFUSED   0 \+ 1 = 1 with token \d+: the counter has seen token \d+`,
						`  ok        late  .*`,
						`VERDICT: OK`,
					} {
						assert.Regexp(t, `(?m)^`+line+`$`, string(out))
					}
				})
			}
		})
	}
}

// doctor checks that "dlock doctor" finds no problem. Test servers may cause
// warnings.
func doctor(t *testing.T, name, dsn string) {
	out, _ := program(t, "doctor", "-driver", name, "-dsn", dsn)
	t.Logf("%s", out)
	for _, line := range []string{"ok +began session", "(ok|warning) +the session timeout is", "ok +took and released a lock", "(ok|unknown|warning) +.* (nodes|sequences|more)$"} {
		assert.Regexp(t, `(?m)^`+line, string(out))
	}
	assert.NotContains(t, string(out), "problem ")
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
	require.NoError(t, err)
	assert.Contains(t, string(deps), "dlock/internal/command")
	assert.NotRegexp(t, `(?m)^testing$|dlocktest|testenv|testify`, string(deps))
}

func TestTheHelpNamesEveryDriver(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, command.Run(t.Context(), []string{"demo", "-h"}, &out, &out))
	for _, driver := range dlock.Drivers() {
		assert.Contains(t, out.String(), "\n  "+driver+" ")
	}
}

// Drivers also get each other's data source names, which they must reject.
func TestNoMistakeOnTheCommandLineRepeatsAPassword(t *testing.T) {
	t.Chdir(t.TempDir()) // SQLite may create files here
	for _, dsn := range []string{
		"redis://alice:geheim@127.0.0.1:1/x", "etcd://alice:geheim@127.0.0.1:1?colour=red", "nats://alice:geheim@127.0.0.1:1?colour=red", "zk://alice:geheim@127.0.0.1:1/?colour=red",
		"postgres://alice:geheim@127.0.0.1:1/db?colour=red", "postgres://127.0.0.1:1/db?password=geheim&colour=red",
		"host=127.0.0.1 port=x user=alice password=geheim", "alice:geheim@tcp(127.0.0.1:1)/db?colour=red", "file:x?password=geheim",
	} {
		for _, driver := range slices.Concat(dlock.Drivers(), []string{dsn}) {
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // most of the stores can't be reached
			args := []string{"demo", "-driver", driver, "-dsn", dsn, "-workers", "1", "-lock", "q"}
			status := command.Run(ctx, args, &out, &out)
			cancel()
			assert.True(t, status != 0 || driver == "mem" || driver == "sqlite", "%s accepts %s", driver, dsn)
			assert.NotContains(t, out.String(), "geheim", "%s, %s", driver, dsn)
		}
	}
}

// SQLite takes the data source name for a file name, which its errors quote.
func TestNoErrorRepeatsAPasswordOfTheEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("DLOCK_DSN", "alice:geheim@127.0.0.1:1/x")
	out, err := program(t, "demo", "-driver", "sqlite")
	assert.Error(t, err)
	assert.Contains(t, string(out), "alice:...@127.0.0.1")
	assert.NotContains(t, string(out), "geheim")
}
