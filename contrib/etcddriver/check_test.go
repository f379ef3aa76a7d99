package etcddriver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/etcdtest"
)

func checked(t *testing.T, dsn string) doctortest.Findings {
	t.Helper()
	return doctortest.Check(t, Driver{}, dsn)
}

func TestCheckOfAHealthyServer(t *testing.T) {
	server := etcdtest.Shared(t)
	prefix := server.Prefix()
	found := checked(t, "etcd://"+server.Addr()+"/"+prefix)
	found.Has(t, driver.OK, "with room for", "")
	for _, f := range found { // warnings about the installed etcd are fine
		assert.NotEqual(t, driver.Problem, f.Level, "%v", f)
	}
	assert.Equal(t, prefix+"//layout\n\n", server.Etcdctl("get", "--prefix", prefix, "--keys-only"))
}

func TestCheckOfAProxy(t *testing.T) {
	server := etcdtest.Shared(t)
	addr := etcdtest.StartProxy(t, server)
	checked(t, "etcd://"+addr+"/"+server.Prefix()).Has(t, driver.Problem, "grpc-proxy", "name the members themselves")
}

func TestCheckOfAUserWithoutRights(t *testing.T) {
	server := etcdtest.Start(t)
	server.EnableAuth("root", "shop", "geheim", "locks/")
	checked(t, "etcd://shop:geheim@"+server.Addr()+"/locks").Has(t, driver.OK, "with room for", "")
	checked(t, "etcd://shop:geheim@"+server.Addr()+"/other").Has(t, driver.Problem, "permission denied", "readwrite")
}

func TestCheckOfTwoClustersAndOfHistory(t *testing.T) {
	one, other := etcdtest.Start(t, etcdtest.WithArgs("--quota-backend-bytes=65536")), etcdtest.Shared(t)
	checked(t, "etcd://"+one.Addr()+","+other.Addr()+"/locks").Has(t, driver.Problem, "different clusters", "members of one cluster")

	s := connectTo(t, "etcd://"+one.Addr()+"/locks?"+longSession)
	for range 10 {
		require.NoError(t, s.Delete(within(t), "q", create(t, s, "q", "h-W-").Place, driver.Changed))
	}
	doctortest.Findings(s.b.checkHistory(within(t), 10)).Has(t, driver.Warning, "more than 10 old revisions", "--auto-compaction-retention")
	one.Etcdctl("compact", "20")
	assert.Len(t, s.b.checkHistory(within(t), 10), 1)

	for { // until the quota is reached
		if _, err := s.b.client.Put(within(t), "filler", string(make([]byte, 60000))); err != nil {
			break
		}
	}
	checked(t, "etcd://"+one.Addr()+"/locks").Has(t, driver.Problem, "database space exceeded", "--quota-backend-bytes")
}

func TestCheckOfALearner(t *testing.T) {
	server := etcdtest.Start(t)
	learner := server.Learner(t)
	checked(t, "etcd://"+server.Addr()+","+learner.Addr()+"/locks").Has(t, driver.Problem, learner.Addr()+": the member is a learner", "promote the member")
}

func TestCheckOfAClusterWithoutAMajority(t *testing.T) {
	if testing.Short() {
		t.Skip("requests to such a cluster wait for their time limit")
	}
	e := etcdtest.StartEnsemble(t, 3)
	s := connectTo(t, "etcd://"+strings.Join(e.Addrs(), ",")+"/locks?"+longSession)
	alive, killed := e.Servers[0], e.Servers[1]
	killed.Kill()
	e.Servers[2].Kill()
	eventually(t, func() bool {
		m, err := s.b.client.Status(within(t), alive.Addr())
		return err == nil && m.Leader == 0
	})
	checked(t, "etcd://"+alive.Addr()+"/locks").Has(t, driver.Problem, "none of the servers that answer has a leader", "a majority")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // without a leader, reading the revision blocks
	defer cancel()
	found := doctortest.Findings(s.b.checkHistory(ctx, muchHistory))
	found.Has(t, driver.Unknown, "", "try again")
	c, err := Driver{}.OpenConnector("etcd://" + alive.Addr() + "," + killed.Addr() + "/locks")
	require.NoError(t, err)
	found = c.(*connector).checkMembers(within(t), s.b.client)
	found.Has(t, driver.Warning, alive.Addr()+": the member has no leader", "a majority")
	found.Has(t, driver.Unknown, killed.Addr()+": no status", "etcdctl endpoint status")
}

func TestReleasesThatMayKeepLostLeases(t *testing.T) {
	for version, faulty := range map[string]bool{"3.4.23": true, "3.4.31": false, "3.5.12": true, "3.5.13": false, "3.6.0": false, "3.3.1": true, "": false} {
		assert.Equal(t, faulty, mayKeepLostLeases(version), version)
	}
}
