package sqlite

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

const mountVariable = "DLOCK_SQLITE_MOUNT"

// The test runs itself in a mount namespace, where it may mount a small disk.
func TestCheckOfASmallDisk(t *testing.T) {
	if os.Getenv(mountVariable) == "" {
		test := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		test.Env = append(os.Environ(), mountVariable+"=1")
		test.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, Unshareflags: syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := test.CombinedOutput()
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) {
			t.Skipf("this machine has no user namespaces, as some containers: %v", err)
		}
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return
	}
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	defer func() { require.NoError(t, syscall.Unmount(dir, 0)) }()
	path := filepath.Join(dir, "locks.db")
	checked(t, path).Has(t, driver.Warning, "bytes left: when it is full", "free the disk")
	require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 2<<20), 0o600), syscall.ENOSPC)
	for _, path := range []string{path, filepath.Join(dir, "new.db")} {
		checked(t, path).Has(t, driver.Problem, "the disk is full", "free the disk")
	}
}
