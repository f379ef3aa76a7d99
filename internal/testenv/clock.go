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

// clockSource wraps the functions of the C library that read the wall clock. A server
// cannot tell that from a clock that an operator has set.
//
//go:embed testdata/clock.c
var clockSource []byte

// clockFile is the name of a file in the server's directory. The file holds the
// offset of the clock.
const clockFile = "clock-offset"

// clockLibrary compiles clockSource, once for each test binary.
var clockLibrary = sync.OnceValues(func() ([]byte, error) { return compileLibrary("clock", clockSource) })

// RequireClock ends the test if this machine cannot set the clock of a server. That
// needs Linux and a C compiler, as the race detector does. The test fails if the
// store is required, see [Dependency.Required], and is skipped otherwise.
func RequireClock(t testing.TB, store Dependency) {
	t.Helper()
	_, err := clockLibrary()
	clock := Dependency{Name: "a server whose clock can be set", Variable: store.Variable, Install: "apt-get install -y gcc libc6-dev"}
	clock.Require(t, err)
}

// ClockCommand returns the beginning of a command line. If the command line of a
// server begins with it, [SetClock] sets the wall clock of the server and of the
// processes that the server starts. The clock is right at first. The server's
// monotonic clock does not change. dir is the server's directory.
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

// SetClock sets the wall clock of a server whose command line begins with
// [ClockCommand] for dir. The clock is ahead of the clock of this machine by offset,
// or behind if offset is negative. When SetClock returns, the server's next look at
// its clock sees the change.
func SetClock(dir string, offset time.Duration) error {
	f, err := os.OpenFile(filepath.Join(dir, clockFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// The server has mapped the file. It never sees half of these 8 bytes, because the
	// kernel copies them at once.
	_, err = f.Write(binary.NativeEndian.AppendUint64(nil, uint64(offset)))
	return err
}
