package pgtest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

var postgres = testenv.Dependency{
	Name:     "a real PostgreSQL",
	Variable: "DLOCK_TEST_POSTGRES",
	Install:  "apt-get install -y --no-install-recommends postgresql, or its programs on the PATH",
}

var pgbouncer = testenv.Dependency{
	Name:     "pgbouncer",
	Variable: "DLOCK_TEST_POSTGRES",
	Install:  "apt-get install -y --no-install-recommends pgbouncer",
}

// Require ends the test if this machine cannot run PostgreSQL. With
// DLOCK_TEST_POSTGRES=require the test fails. Otherwise the test is skipped, and
// the first skip of a test binary is also reported on standard error and on the
// terminal, if there is one.
//
// [Start] and [Shared] call Require themselves.
func Require(t testing.TB) {
	t.Helper()
	for _, name := range []string{"initdb", "postgres", "psql"} {
		_, err := program(name)
		postgres.Require(t, err)
	}
}

// RequireClock ends the test if [WithClock] does not work on this machine.
func RequireClock(t testing.TB) {
	t.Helper()
	Require(t)
	testenv.RequireClock(t, postgres)
}

// program returns the path of a PostgreSQL program. Debian installs the
// server's programs outside the PATH.
func program(name string) (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err == nil && len(found) > 0 {
		return slices.Max(found), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("PostgreSQL's program %s is missing", name)
	}
	return path, nil
}
