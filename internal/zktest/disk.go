package zktest

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
	"testing"
	"time"
)

// The functions of the C library by which a server waits for its disk are put behind ones that wait a
// while longer. That is no device that is slow, but a server cannot tell the two apart.
//
//go:embed testdata/slowdisk.c
var slowDiskSource []byte

// diskDelayFile holds the delay in microseconds; it is in the server's directory.
const diskDelayFile = "disk-delay"

var slowDiskLibrary struct {
	sync.Mutex
	path string
	err  error
}

// SlowDiskNeeds returns why [WithSlowDisk] cannot be used on this machine, or nil. It needs Linux and a C
// compiler, as the race detector does.
func SlowDiskNeeds() error {
	_, err := slowDisk()
	return err
}

// RequireSlowDisk skips a test where [SlowDiskNeeds] says why it cannot run. With
// DLOCK_TEST_ZOOKEEPER=require that is a failure on Linux, where nothing but a compiler can be missing.
func RequireSlowDisk(t testing.TB) {
	t.Helper()
	err := SlowDiskNeeds()
	switch {
	case err == nil:
	case os.Getenv(requireVariable) == "require" && runtime.GOOS == "linux":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// slowDisk compiles the library once for each test binary. [Main] removes it.
func slowDisk() (string, error) {
	l := &slowDiskLibrary
	l.Lock()
	defer l.Unlock()
	if l.path == "" && l.err == nil {
		l.path, l.err = compileSlowDisk()
	}
	return l.path, l.err
}

func compileSlowDisk() (string, error) {
	if runtime.GOOS != "linux" {
		return "", errors.New("zktest: a slow disk needs Linux")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		if cc, err = exec.LookPath("gcc"); err != nil {
			return "", errors.New("zktest: a slow disk needs a C compiler")
		}
	}
	dir, err := os.MkdirTemp("", "zktest-disk-")
	if err != nil {
		return "", err
	}
	source, library := filepath.Join(dir, "slowdisk.c"), filepath.Join(dir, "slowdisk.so")
	if err := os.WriteFile(source, slowDiskSource, 0o600); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	if said, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("zktest: %s: %w: %s", cc, err, said), os.RemoveAll(dir))
	}
	return library, nil
}

func removeSlowDisk() {
	l := &slowDiskLibrary
	l.Lock()
	defer l.Unlock()
	if l.path != "" {
		os.RemoveAll(filepath.Dir(l.path))
		l.path = ""
	}
}

// WithSlowDisk makes [Server.SetDiskDelay] possible. The test fails where [SlowDiskNeeds] says why.
func WithSlowDisk(t testing.TB) Option {
	t.Helper()
	library, err := slowDisk()
	if err != nil {
		t.Fatal(err)
	}
	return func(s *settings) { s.preload = library }
}

// slowDiskCommand is what the server's command line begins with.
func (p *process) slowDiskCommand(library string) []string {
	return []string{"/usr/bin/env", "LD_PRELOAD=" + library, "ZKTEST_DISK_DELAY=" + filepath.Join(p.dir, diskDelayFile)}
}

// SetDiskDelay makes every wait of the server for its disk (fsync, fdatasync) take d longer, from the next
// one on; 0 ends it. A wait that is under way is not cut short. The server has to be one [WithSlowDisk].
func (s *Server) SetDiskDelay(d time.Duration) {
	s.t.Helper()
	name := filepath.Join(s.dir, diskDelayFile)
	s.must(os.WriteFile(name+".new", []byte(strconv.FormatInt(d.Microseconds(), 10)), 0o600))
	s.must(os.Rename(name+".new", name)) // never half a number
}
