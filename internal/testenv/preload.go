package testenv

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// library is C code, with a settings file, that replaces system functions in a
// server.
type library struct {
	name, variable string
	compile        func() ([]byte, error)
}

func newLibrary(name, variable string, source []byte) *library {
	return &library{name, variable, sync.OnceValues(func() ([]byte, error) { return Compile(name, source, "-shared", "-fPIC", "-ldl") })}
}

//go:embed testdata/clock.c
var clockSource []byte

var clockLibrary = newLibrary("clock", "TESTENV_CLOCK", clockSource)

//go:embed testdata/slowdisk.c
var slowDiskSource []byte

// slowDiskLibrary delays fsync and fdatasync, so that a server sees a slow disk.
var slowDiskLibrary = newLibrary("slowdisk", "TESTENV_DISK_DELAY", slowDiskSource)

// RequireCompiled skips the test if a C program does not run on this machine:
// the error err says why, and is nil otherwise. On Linux, where only packages
// can be missing, the test fails instead if the store is required.
func (st *Store) RequireCompiled(t testing.TB, what string, err error) {
	t.Helper()
	st.Require(t)
	if err != nil && runtime.GOOS != "linux" {
		t.Skip(err)
	}
	Dependency{Name: what, Variable: st.Variable, Install: "apt-get install -y gcc libc6-dev"}.Require(t, err)
}

// RequireClock skips or fails the test, like [Store.RequireCompiled], if the
// clock that a server sees cannot be changed.
func (st *Store) RequireClock(t testing.TB) {
	t.Helper()
	_, err := clockLibrary.compile()
	st.RequireCompiled(t, "a server whose clock can be set", err)
}

// CheckSlowDisk returns an error if this machine cannot slow down a server's
// disk, which needs Linux and a C compiler.
func CheckSlowDisk() error {
	_, err := slowDiskLibrary.compile()
	return err
}

// Compile compiles the C program source and returns the result. It needs Linux
// and a C compiler. The name appears in error messages.
func Compile(name string, source []byte, flags ...string) ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("testenv: %s needs Linux", name)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		if cc, err = exec.LookPath("gcc"); err != nil {
			return nil, errors.New("testenv: " + name + " needs a C compiler")
		}
	}
	dir, err := os.MkdirTemp("", "testenv-"+name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, binary := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, err
	}
	arguments := append([]string{"-O1", "-o", binary, file}, flags...)
	if output, err := exec.Command(cc, arguments...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("testenv: %s: %w: %s", cc, err, output)
	}
	return os.ReadFile(binary)
}

// preload returns a prefix for the server's command line that loads the
// library.
func (s Server) preload(l *library) []string {
	s.T.Helper()
	binary, err := l.compile()
	s.Must(err)
	return []string{"/usr/bin/env", "LD_PRELOAD=" + s.Write(l.name+".so", string(binary)), l.variable + "=" + s.File(l.name)}
}

// ClockCommand returns a prefix for the server's command line. With this
// prefix, [Server.SetClock] changes the wall clock of the server and its child
// processes, but not their monotonic clock. Call [Store.RequireClock] first.
func (s Server) ClockCommand() []string {
	s.T.Helper()
	s.SetClock(0)
	return s.preload(clockLibrary)
}

// SetClock sets the server's wall clock to the machine's clock plus offset, at
// once. The server must have been started with [Server.ClockCommand].
func (s Server) SetClock(offset time.Duration) {
	s.T.Helper()
	f, err := os.OpenFile(s.File(clockLibrary.name), os.O_CREATE|os.O_WRONLY, 0o600)
	s.Must(err)
	defer f.Close()
	// The server maps this file, but never sees a partial write of 8 bytes.
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(offset)))
	s.Must(err)
}

// SlowDiskCommand returns a prefix for the server's command line that enables
// [Server.SetDiskDelay].
func (s Server) SlowDiskCommand() []string {
	s.T.Helper()
	return s.preload(slowDiskLibrary)
}

// SetDiskDelay makes every sync of the server to disk take d longer. A sync in
// progress is not affected.
func (s Server) SetDiskDelay(d time.Duration) {
	s.T.Helper()
	name := s.Write(slowDiskLibrary.name+".new", strconv.FormatInt(d.Microseconds(), 10))
	s.Must(os.Rename(name, s.File(slowDiskLibrary.name))) // atomic, so the server reads whole numbers
}
