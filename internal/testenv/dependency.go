package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Dependency is something that tests need but a machine may lack, such as a
// server program.
type Dependency struct {
	// Name appears in messages, such as "a real ZooKeeper".
	Name string
	// Variable is an environment variable. If it is "require", tests fail
	// without the dependency; otherwise they are skipped.
	Variable string
	// Install says how to install the dependency.
	Install string
}

// Require does nothing if err is nil. Otherwise it skips the test, or fails the
// test if d is required. The error err says what is missing. The first skip in
// a test binary is also reported on standard error and on the terminal, if
// there is one.
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

func OnPath(programs ...string) (err error) {
	for _, program := range programs {
		_, missing := exec.LookPath(program)
		err = errors.Join(err, missing)
	}
	return err
}

// Required reports whether tests fail without the dependency.
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

// printOnTerminal bypasses go test, which discards the output of passing tests.
func printOnTerminal(notice string) {
	if isTerminal(os.Stderr) {
		return // the caller has already printed the notice there
	}
	tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0)
	if err != nil {
		return // no terminal, or not a Unix system
	}
	defer tty.Close()
	fmt.Fprint(tty, notice)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
