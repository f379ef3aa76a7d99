package etcdtest

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

var etcd = testenv.Dependency{
	Name:     "a real etcd",
	Variable: "DLOCK_TEST_ETCD",
	Install: "apt-get install -y --no-install-recommends etcd-server etcd-client, " +
		"or the programs etcd and etcdctl of a release on the PATH",
}

// Require skips the test if etcd is not installed, or fails it if
// DLOCK_TEST_ETCD=require is set. The first skip in a test binary is also
// reported on standard error and on the terminal, if there is one. [Start],
// [Shared] and [StartEnsemble] call Require.
func Require(t testing.TB) {
	t.Helper()
	_, server := exec.LookPath("etcd")
	_, command := exec.LookPath("etcdctl")
	etcd.Require(t, errors.Join(server, command))
}
