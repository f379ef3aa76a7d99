package zktest

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// requireVariable turns a missing ZooKeeper from a skip into a failure.
const requireVariable = "DLOCK_TEST_ZOOKEEPER"

var zooKeeper = testenv.Dependency{
	Name:     "a real ZooKeeper",
	Variable: requireVariable,
	Install: "`make test` installs it; by hand: " +
		"apt-get install -y --no-install-recommends zookeeper default-jre-headless, " +
		"or Java on the PATH and ZOOKEEPER_HOME pointing at an unpacked release of ZooKeeper",
}

var otherLibraries = testenv.Dependency{
	Name:     "a lock library of others",
	Variable: requireVariable,
	Install:  "`make test` installs it",
}

var compiler = testenv.Dependency{
	Name:     "a C compiler",
	Variable: requireVariable,
	Install:  "`make test` installs it",
}

// Require ends the test if this machine cannot run ZooKeeper. With
// DLOCK_TEST_ZOOKEEPER=require the test fails. Otherwise it is skipped, and the
// first skip of a test binary is also reported on standard error and on the
// terminal, if there is one.
//
// [Start], [Shared] and [StartEnsemble] call Require themselves.
func Require(t testing.TB) {
	t.Helper()
	_, err := installed()
	zooKeeper.Require(t, err)
}

// RequirePeer ends the test if err, as returned by [Curator] or [Kazoo], says
// that a library is missing. With DLOCK_TEST_ZOOKEEPER=require the test fails.
// Otherwise it is skipped.
func RequirePeer(t testing.TB, err error) {
	t.Helper()
	otherLibraries.Require(t, err)
}
