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

// Require ends the test if this machine cannot run etcd. With
// DLOCK_TEST_ETCD=require the test fails. Otherwise the test is skipped, and the
// first skip of a test binary is also reported on standard error and on the
// terminal, if there is one.
//
// [Start], [Shared] and [StartEnsemble] call Require themselves.
func Require(t testing.TB) {
	t.Helper()
	_, server := exec.LookPath("etcd")
	_, command := exec.LookPath("etcdctl")
	etcd.Require(t, errors.Join(server, command))
}
