package testenv

import (
	_ "embed"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// slowDiskSource wraps the functions of the C library by which a server waits
// for its disk (fsync, fdatasync) with functions that wait longer. A server
// cannot tell that from a slow device.
//
//go:embed testdata/slowdisk.c
var slowDiskSource []byte

// diskDelayFile is the name of a file in the server's directory. The file holds
// the delay in microseconds.
const diskDelayFile = "disk-delay"

// slowDiskLibrary compiles slowDiskSource, once for each test binary.
var slowDiskLibrary = sync.OnceValues(func() ([]byte, error) { return compileLibrary("slowdisk", slowDiskSource) })

// CheckSlowDisk returns why this machine cannot slow down a disk, or nil. A
// slow disk needs Linux and a C compiler, as the race detector does.
func CheckSlowDisk() error {
	_, err := slowDiskLibrary()
	return err
}

// SlowDiskCommand returns the beginning of a command line. If the command line
// of a server begins with it, the server waits longer for its disk once
// [SetDiskDelay] has set a delay for dir, which is the server's directory.
func SlowDiskCommand(dir string) ([]string, error) {
	library, err := slowDiskLibrary()
	if err != nil {
		return nil, err
	}
	return preload(filepath.Join(dir, "slowdisk.so"), library, "TESTENV_DISK_DELAY="+filepath.Join(dir, diskDelayFile))
}

// SetDiskDelay makes every wait for the disk take d longer, for a server whose
// command line begins with [SlowDiskCommand] for dir. The delay counts from the
// next wait on. A d of 0 ends it. A wait that has begun keeps its delay.
func SetDiskDelay(dir string, d time.Duration) error {
	name := filepath.Join(dir, diskDelayFile)
	text := strconv.FormatInt(d.Microseconds(), 10)
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name) // so the server never reads half a number
}
