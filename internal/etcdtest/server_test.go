package etcdtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFollowerWhoseDiskHangsAnswersWhenItIsMended(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
	RequireHangingDisk(t)
	e := StartEnsemble(t, 3, WithHangingDisk())
	leader := e.Leader(t)
	follower := e.Servers[(leader+1)%3]
	follower.HangDisk()
	e.Servers[leader].Etcdctl("put", "a", "1")
	_, err := follower.etcdctl("--command-timeout", "1s", "get", "a")
	require.Error(t, err)
	follower.MendDisk()
	require.Equal(t, "a\n1\n", follower.Etcdctl("get", "a"))
}
