package sqlite

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// TestFilesThatOtherMachinesMayShareAreRefused has a directory with two mounts, as
// two machines have it. If the driver took the second mount, a session there would
// take the holder for dead, and get its lock.
func TestFilesThatOtherMachinesMayShareAreRefused(t *testing.T) {
	for number, name := range map[uint32]string{ // as in statfs(2)
		0x6969: "NFS", 0xfe534d42: "SMB2", 0x01021997: "9p", 0x786f4256: "vboxsf", 0x65735546: "FUSE",
	} {
		require.Equal(t, name, networkFileSystems[number])
	}
	local, mounted := directory(t), directory(t)
	if out, err := exec.Command("bindfs", local, mounted).CombinedOutput(); err != nil {
		t.Skipf("no second mount: %v: %s", err, out)
	}
	defer syscall.Unmount(mounted, syscall.MNT_DETACH)
	c, _ := client(t, filepath.Join(local, "locks.db"))
	held, err := c.RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(mounted, "locks.db"))
	require.NoError(t, err)
	other, err := dlock.Open("sqlite", filepath.Join(mounted, "locks.db"))
	require.NoError(t, err)
	defer other.Close()
	_, err = other.RWMutex("stock/42").TryLock(t.Context())
	require.ErrorContains(t, err, "(FUSE) that other machines may share")
	require.NotErrorIs(t, err, dlock.ErrUnavailable)
	require.NoError(t, held.Unlock())
}
