package etcdtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
)

func TestAServerKeepsItsDataWhenItIsKilled(t *testing.T) {
	s := Start(t)
	s.Etcdctl("put", "a", "1")
	s.Kill()
	s.Restart()
	require.Equal(t, "a\n1\n", s.Etcdctl("get", "a"))
}

func TestAPausedServerGoesOnWhenItIsResumed(t *testing.T) {
	s := Start(t)
	s.Pause()
	require.False(t, s.healthy())
	s.Resume()
	require.Contains(t, s.Etcdctl("put", "a", "1"), "OK")
}

func TestTheSharedServerGivesEachTestAPrefix(t *testing.T) {
	require.NotEqual(t, Shared(t).Prefix(), Shared(t).Prefix())
	require.Equal(t, Shared(t).URL(), "http://"+Shared(t).Addr())
}

func TestAServerWithTLSAsksForACertificate(t *testing.T) {
	certs := testenv.NewCerts(t)
	s := Start(t, WithTLS(certs, certs.Server, true))
	require.Contains(t, s.Etcdctl("put", "a", "1"), "OK")
	require.True(t, strings.HasPrefix(s.URL(), "https://"))
}

func TestAServerWithAuthRefusesOtherKeys(t *testing.T) {
	s := Start(t)
	s.EnableAuth("r", "shop", "p", "locks/")
	require.Contains(t, s.Etcdctl("--user", "shop:p", "put", "locks/a", "1"), "OK")
	require.Contains(t, s.Etcdctl("--user", "root:r", "put", "other", "1"), "OK")
}

func TestAnEnsembleElectsAnotherLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an ensemble")
	}
	e := StartEnsemble(t, 3)
	require.Len(t, e.Addrs(), 3)
	first := e.Leader(t)
	e.MoveLeader(t)
	second := e.Leader(t)
	require.NotEqual(t, first, second)
	e.Servers[second].Kill()
	require.NotEqual(t, second, e.Leader(t))
	e.Servers[second].Restart()
	require.Positive(t, e.Servers[second].Metric("etcd_server_has_leader", ""))
}

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
