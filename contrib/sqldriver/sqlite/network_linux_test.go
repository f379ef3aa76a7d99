package sqlite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
)

var bindfs = testenv.Dependency{
	Name:     "a second mount",
	Variable: "DLOCK_TEST_SQLITE",
	Install:  "apt-get install -y bindfs",
}

func TestFilesThatOtherMachinesMayShareAreRefused(t *testing.T) {
	for number, name := range map[uint32]string{ // as in statfs(2)
		0x6969: "NFS", 0xfe534d42: "SMB2", 0x01021997: "9p", 0x786f4256: "vboxsf", 0x65735546: "FUSE",
	} {
		require.Equal(t, name, networkFileSystems[number])
	}
}

// File locks may be invisible through a second mount, so that holders seem
// dead.
func TestASecondMountIsRefused(t *testing.T) {
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this machine has no FUSE, as most containers: %v", err)
	}
	fuse.Close()
	local, mounted := directory(t), directory(t)
	out, err := exec.Command("bindfs", local, mounted).CombinedOutput()
	if err != nil {
		bindfs.Require(t, fmt.Errorf("bindfs: %w: %s", err, out))
	}
	defer func() {
		out, err := exec.Command("fusermount", "-u", "-z", mounted).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}()
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
