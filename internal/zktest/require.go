package zktest

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// requireVariable is an environment variable. If it is "require", tests fail
// without ZooKeeper; otherwise they are skipped.
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

// Require skips the test if ZooKeeper is not installed, or fails it if
// DLOCK_TEST_ZOOKEEPER=require. The first skip in a test binary is also
// reported on standard error and on the terminal, if there is one. [Start],
// [Shared] and [StartEnsemble] call Require.
func Require(t testing.TB) {
	t.Helper()
	_, err := installed()
	zooKeeper.Require(t, err)
}

// RequirePeer ends the test if err, as returned by [Curator] or [Kazoo], is not
// nil. The test fails if DLOCK_TEST_ZOOKEEPER=require, and is skipped
// otherwise.
func RequirePeer(t testing.TB, err error) {
	t.Helper()
	otherLibraries.Require(t, err)
}
