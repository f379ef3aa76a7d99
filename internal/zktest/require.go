package zktest

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// requireVariable is the environment variable that turns a missing ZooKeeper from a skip
// into a failure.
const requireVariable = "DLOCK_TEST_ZOOKEEPER"

const howToInstall = "`make test` installs it; by hand: apt-get install -y --no-install-recommends zookeeper default-jre-headless, " +
	"or Java on the PATH and ZOOKEEPER_HOME pointing at an unpacked release of ZooKeeper"

// Require ends the test where this machine cannot run ZooKeeper. With
// DLOCK_TEST_ZOOKEEPER=require that is a failure. Otherwise the test is
// skipped, and the first one of a test binary also says on standard error what
// was left out.
//
// [Start], [Shared] and [StartEnsemble] call it themselves.
func Require(t testing.TB) {
	t.Helper()
	_, err := installed()
	if err == nil {
		return
	}
	if os.Getenv(requireVariable) == "require" {
		t.Fatalf("zktest: %v: %s", err, howToInstall)
	}
	sayLeftOut(err)
	t.Skipf("zktest: LEFT OUT, no real ZooKeeper: %v: %s", err, howToInstall)
}

var leftOut sync.Once

func sayLeftOut(err error) {
	leftOut.Do(func() {
		fmt.Fprintf(os.Stderr, "zktest: LEFT OUT every test of %s that needs a real ZooKeeper: %v: %s\n", os.Args[0], err, howToInstall)
	})
}
