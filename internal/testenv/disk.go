package testenv

import (
	_ "embed"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// slowDiskSource is C code that delays fsync and fdatasync, so that a server
// sees a slow disk.
//
//go:embed testdata/slowdisk.c
var slowDiskSource []byte

const diskDelayFile = "disk-delay"

var slowDiskLibrary = sync.OnceValues(func() ([]byte, error) { return compileLibrary("slowdisk", slowDiskSource) })

// CheckSlowDisk returns an error if this machine cannot slow down a server's
// disk, which needs Linux and a C compiler.
func CheckSlowDisk() error {
	_, err := slowDiskLibrary()
	return err
}

// SlowDiskCommand returns a command with which to prefix a server's command
// line. [SetDiskDelay] then slows down its disk. dir is the server's directory.
func SlowDiskCommand(dir string) ([]string, error) {
	library, err := slowDiskLibrary()
	if err != nil {
		return nil, err
	}
	return preload(filepath.Join(dir, "slowdisk.so"), library, "TESTENV_DISK_DELAY="+filepath.Join(dir, diskDelayFile))
}

// SetDiskDelay makes every sync to disk take d longer. The server must have
// been started with [SlowDiskCommand] for dir. A sync in progress is not
// affected.
func SetDiskDelay(dir string, d time.Duration) error {
	name := filepath.Join(dir, diskDelayFile)
	text := strconv.FormatInt(d.Microseconds(), 10)
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name) // atomic, so that the server never reads a partial number
}
