package mysqltest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

var mariadb = testenv.Dependency{
	Name:     "a real MariaDB",
	Variable: "DLOCK_TEST_MYSQL",
	Install:  "apt-get install -y --no-install-recommends mariadb-server, or its programs on the PATH",
}

// Require ends the test if this machine cannot run MariaDB. With
// DLOCK_TEST_MYSQL=require the test fails. Otherwise the test is skipped, and the
// first skip of a test binary is also reported on standard error and on the terminal,
// if there is one.
//
// [Start] and [Shared] call Require themselves.
func Require(t testing.TB) {
	t.Helper()
	for _, name := range []string{"mariadb-install-db", "mariadbd", "mariadb"} {
		_, err := program(name)
		mariadb.Require(t, err)
	}
}

// RequireClock ends the test like [Require] if this machine cannot change a
// server's clock.
func RequireClock(t testing.TB) {
	t.Helper()
	Require(t)
	testenv.RequireClock(t, mariadb)
}

const galera = "/usr/lib/galera/libgalera_smm.so" // as in Debian's package galera-4

// RequireGalera ends the test like [Require] if Galera is not installed.
func RequireGalera(t testing.TB) {
	t.Helper()
	Require(t)
	_, err := os.Stat(galera)
	mariadb.Require(t, err)
}

// program returns the path of a MariaDB program. Debian installs the server
// outside most users' PATH.
func program(name string) (string, error) {
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("MariaDB's program %s is missing", name)
}
