package testenv

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
var slowDiskLibrary = sync.OnceValues(compileSlowDisk)

// CheckSlowDisk returns why this machine cannot slow down a disk, or nil. A
// slow disk needs Linux and a C compiler, as the race detector does.
func CheckSlowDisk() error {
	_, err := slowDiskLibrary()
	return err
}

func compileSlowDisk() ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("testenv: a slow disk needs Linux")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		if cc, err = exec.LookPath("gcc"); err != nil {
			return nil, errors.New("testenv: a slow disk needs a C compiler")
		}
	}
	dir, err := os.MkdirTemp("", "testenv-disk-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, library := filepath.Join(dir, "slowdisk.c"), filepath.Join(dir, "slowdisk.so")
	if err := os.WriteFile(source, slowDiskSource, 0o600); err != nil {
		return nil, err
	}
	compile := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl")
	if output, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("testenv: %s: %w: %s", cc, err, output)
	}
	return os.ReadFile(library)
}

// SlowDiskCommand returns the beginning of a command line. If the command line
// of a server begins with it, the server waits longer for its disk once
// [SetDiskDelay] has set a delay for dir, which is the server's directory.
func SlowDiskCommand(dir string) ([]string, error) {
	library, err := slowDiskLibrary()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "slowdisk.so")
	if err := os.WriteFile(path, library, 0o700); err != nil {
		return nil, err
	}
	delay := filepath.Join(dir, diskDelayFile)
	return []string{"/usr/bin/env", "LD_PRELOAD=" + path, "TESTENV_DISK_DELAY=" + delay}, nil
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
