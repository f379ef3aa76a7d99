package testenv

import (
	_ "embed"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// clockSource is C code that replaces the functions that read the wall clock,
// so that a server sees a changed clock.
//
//go:embed testdata/clock.c
var clockSource []byte

const clockFile = "clock-offset"

var clockLibrary = sync.OnceValues(func() ([]byte, error) { return compileLibrary("clock", clockSource) })

// RequireClock ends the test if this machine cannot change a server's clock,
// which needs Linux and a C compiler. The test fails if the store is required
// (see [Dependency.Required]), and is skipped otherwise.
func RequireClock(t testing.TB, store Dependency) {
	t.Helper()
	_, err := clockLibrary()
	clock := Dependency{Name: "a server whose clock can be set", Variable: store.Variable, Install: "apt-get install -y gcc libc6-dev"}
	clock.Require(t, err)
}

// ClockCommand returns a command with which to prefix a server's command line.
// [SetClock] then changes the wall clock of the server and its child processes.
// Their monotonic clock is not affected. dir is the server's directory.
func ClockCommand(dir string) ([]string, error) {
	library, err := clockLibrary()
	if err != nil {
		return nil, err
	}
	if err := SetClock(dir, 0); err != nil {
		return nil, err
	}
	return preload(filepath.Join(dir, "clock.so"), library, "TESTENV_CLOCK="+filepath.Join(dir, clockFile))
}

// SetClock sets a server's wall clock to the machine's clock plus offset. The
// server must have been started with [ClockCommand] for dir, and sees the
// change at once.
func SetClock(dir string, offset time.Duration) error {
	f, err := os.OpenFile(filepath.Join(dir, clockFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// The server maps this file into memory. It never sees a partial write,
	// because the kernel copies the 8 bytes at once.
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(offset)))
	return err
}
