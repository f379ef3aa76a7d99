package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Dependency is something that tests need and a machine may lack, such as a
// server's program.
type Dependency struct {
	// Name names the dependency in messages, such as "a real ZooKeeper".
	Name string
	// Variable is the name of an environment variable. If its value is
	// "require", a test that lacks the dependency fails. Otherwise the test is
	// skipped.
	Variable string
	// Install says how to install the dependency.
	Install string
}

// Require ends the test if err, which says what is missing, is not nil. If the
// environment variable d.Variable is "require", the test fails. Otherwise the
// test is skipped. The first skip of a test binary for this dependency is also
// reported on standard error, and on the terminal if there is one.
func (d Dependency) Require(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if d.Required() {
		t.Fatalf("testenv: %v: %s", err, d.Install)
	}
	d.reportSkips(err)
	t.Skipf("testenv: LEFT OUT, it needs %s: %v: %s", d.Name, err, d.Install)
}

// Required reports whether a test fails if the dependency is missing.
func (d Dependency) Required() bool { return os.Getenv(d.Variable) == "require" }

var reported struct {
	sync.Mutex
	names map[string]bool
}

func (d Dependency) reportSkips(err error) {
	reported.Lock()
	defer reported.Unlock()
	if reported.names[d.Name] {
		return
	}
	if reported.names == nil {
		reported.names = make(map[string]bool)
	}
	reported.names[d.Name] = true
	notice := fmt.Sprintf("testenv: LEFT OUT every test of %s that needs %s: %v: %s\n",
		filepath.Base(os.Args[0]), d.Name, err, d.Install)
	fmt.Fprint(os.Stderr, notice)
	printOnTerminal(notice)
}

// printOnTerminal prints a notice on the terminal, so that a developer who runs
// go test for several packages sees it. Without -v, go test drops what a
// passing test binary prints, standard error included.
func printOnTerminal(notice string) {
	if isTerminal(os.Stderr) {
		return // the developer has seen the notice on standard error
	}
	tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return // the process has no terminal, or the system has no such file
	}
	defer tty.Close()
	fmt.Fprint(tty, notice)
}

// isTerminal reports whether f is a character device other than the null device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
