package zktest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// requireVariable is the environment variable that turns a missing ZooKeeper from a skip
// into a failure.
const requireVariable = "DLOCK_TEST_ZOOKEEPER"

const howToInstall = "`make test` installs it; by hand: " +
	"apt-get install -y --no-install-recommends zookeeper default-jre-headless, " +
	"or Java on the PATH and ZOOKEEPER_HOME pointing at an unpacked release of ZooKeeper"

// Require ends the test where this machine cannot run ZooKeeper. With
// DLOCK_TEST_ZOOKEEPER=require that is a failure. Otherwise the test is
// skipped, and the first one of a test binary also says on standard error and on
// the terminal, if there is one, what was left out.
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

// RequirePeer ends the test if err, of [Curator] or [Kazoo], says that a
// library is missing. With DLOCK_TEST_ZOOKEEPER=require that is a failure.
// Otherwise the test is skipped.
func RequirePeer(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv(requireVariable) == "require" {
		t.Fatalf("zktest: %v: `make test` installs it", err)
	}
	t.Skipf("zktest: LEFT OUT: %v: `make test` installs it", err)
}

var leftOut sync.Once

func sayLeftOut(err error) {
	leftOut.Do(func() {
		notice := fmt.Sprintf("zktest: LEFT OUT every test of %s that needs a real ZooKeeper: %v: %s\n",
			filepath.Base(os.Args[0]), err, howToInstall)
		fmt.Fprint(os.Stderr, notice)
		sayOnTerminal(notice)
	})
}

// sayOnTerminal reaches whoever has called go test for several packages: without -v it drops
// what a passing test binary prints, standard error included.
func sayOnTerminal(notice string) {
	if isTerminal(os.Stderr) {
		return // it is there already
	}
	tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return // nobody is there to read it, or this system has no such file
	}
	defer tty.Close()
	fmt.Fprint(tty, notice)
}

// isTerminal tells whether f is a character device other than the null device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
