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
	"github.com/dlock-go/dlock/internal/testenv"
)

func diagnosed(t *testing.T, dsn string) doctortest.Findings {
	t.Helper()
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	return doctortest.Run(t, c)
}

func TestDiagnoseOfAHealthyServer(t *testing.T) {
	server := etcdtest.Shared(t)
	prefix := server.Prefix()
	found := diagnosed(t, "etcd://"+server.Addr()+"/"+prefix)
	found.Healthy(t, driver.CheckSettings) // CheckSettings may warn of a bug in the installed etcd
	for _, f := range found {
		assert.NotEqual(t, driver.Problem, f.Level, "%v", f)
	}
	assert.Empty(t, server.Etcdctl("get", "--prefix", prefix, "--keys-only"))
	diagnosed(t, "etcd://"+server.Addr()+"/"+prefix+"?session_timeout=1s").Has(t, driver.CheckTimeout, driver.Warning, "", "session_timeout")
}

func TestDiagnoseOfNetworksThatFail(t *testing.T) {
	doctortest.Network(t, func(t *testing.T, host string) driver.Connector {
		c, err := Driver{}.OpenConnector("etcd://me:geheim@" + host + "/locks?session_timeout=1s")
		require.NoError(t, err)
		return c
	})
	doctortest.TLS(t, func(t *testing.T, host, ca string) driver.Connector {
		c, err := Driver{}.OpenConnector("etcd://me:geheim@" + host + "/locks?session_timeout=1s&tls=true&tls_ca=" + ca)
		require.NoError(t, err)
		return c
	}, nil)
}

func TestDiagnoseOfAServerThatWantsAClientCertificate(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := etcdtest.Start(t, etcdtest.WithTLS(certs, certs.Server, true))
	trusted := "etcd://" + server.Addr() + "/locks?tls=true&tls_ca=" + certs.CA
	diagnosed(t, trusted).Ends(t, driver.CheckTLS, "certificate", "client certificate")
	diagnosed(t, trusted+"&tls_cert="+certs.Client.Cert+"&tls_key="+certs.Client.Key).Has(t, driver.CheckTLS, driver.Warning, "the certificate of this client expires", "renew it")
	diagnosed(t, trusted+"&tls_cert="+certs.Stranger.Cert+"&tls_key="+certs.Stranger.Key).Ends(t, driver.CheckTLS, "certificate", "client certificate")
}

func TestDiagnoseOfUsersAndRights(t *testing.T) {
	server := etcdtest.Start(t)
	server.EnableAuth("root", "shop", "geheim", "locks/")
	server.Etcdctl("--user", "root:root", "role", "grant-permission", "--prefix", "locks", "read", "readable/")
	at := server.Addr()
	diagnosed(t, "etcd://shop:geheim@"+at+"/locks").Healthy(t, driver.CheckSettings)
	diagnosed(t, "etcd://shop:geheimer@"+at+"/locks").Ends(t, driver.CheckLogin, "invalid user ID or password", "the user and the password")
	diagnosed(t, "etcd://"+at+"/locks").Ends(t, driver.CheckLogin, "user name is empty", "the user and the password")
	diagnosed(t, "etcd://shop:geheim@"+at+"/other").Ends(t, driver.CheckRights, "permission denied", "readwrite")
	diagnosed(t, "etcd://shop:geheim@"+at+"/readable").Ends(t, driver.CheckRights, "create a node", "readwrite")
}

func TestDiagnoseOfTwoClustersAndOfHistory(t *testing.T) {
	one, other := etcdtest.Start(t, etcdtest.WithArgs("--quota-backend-bytes=65536")), etcdtest.Shared(t)
	diagnosed(t, "etcd://"+one.Addr()+","+other.Addr()+"/locks").Ends(t, driver.CheckLogin, "different clusters", "members of one cluster")

	s := connectTo(t, "etcd://"+one.Addr()+"/locks?"+longSession)
	for range 10 {
		require.NoError(t, s.Delete(within(t), "q", create(t, s, "q", "h-W-").Place, driver.Changed))
	}
	_, found := s.history(within(t), 10)
	doctortest.Findings(found).Has(t, driver.CheckSettings, driver.Warning, "more than 10 old revisions", "--auto-compaction-retention")
	one.Etcdctl("compact", "20")
	_, found = s.history(within(t), 10)
	assert.Empty(t, found)

	for { // until the quota is reached
		if _, err := s.client.Put(within(t), "filler", string(make([]byte, 60000))); err != nil {
			break
		}
	}
	diagnosed(t, "etcd://"+one.Addr()+"/locks").Ends(t, driver.CheckSettings, "database space exceeded", "--quota-backend-bytes")
}

func TestDiagnoseOfALearner(t *testing.T) {
	server := etcdtest.Start(t)
	learner := server.Learner(t)
	diagnosed(t, "etcd://"+server.Addr()+","+learner.Addr()+"/locks").Ends(t, driver.CheckLogin, learner.Addr()+": the member is a learner", "promote the member")
}

func TestDiagnoseOfAClusterWithoutAMajority(t *testing.T) {
	if testing.Short() {
		t.Skip("requests to such a cluster wait for their time limit")
	}
	e := etcdtest.StartEnsemble(t, 3)
	s := connectTo(t, "etcd://"+strings.Join(e.Addrs(), ",")+"/locks?"+longSession)
	alive, killed := e.Servers[0], e.Servers[1]
	killed.Kill()
	e.Servers[2].Kill()
	eventually(t, func() bool {
		m, err := s.client.Status(within(t), alive.Addr())
		return err == nil && m.Leader == 0
	})
	diagnosed(t, "etcd://"+alive.Addr()+"/locks").Ends(t, driver.CheckLogin, "no leader", "a majority")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // without a leader, reading the revision blocks
	defer cancel()
	var found doctortest.Findings
	s.inspect(ctx, func(f driver.Finding) { found = append(found, f) })
	found.Has(t, driver.CheckSettings, driver.Warning, alive.Addr()+": the member has no leader", "a majority")
	found.Has(t, driver.CheckSettings, driver.Unknown, killed.Addr()+": no status", "etcdctl endpoint status")
	found.Has(t, driver.CheckSequences, driver.Unknown, "", "try again")
}

func TestReleasesThatMayKeepLostLeases(t *testing.T) {
	for version, faulty := range map[string]bool{"3.4.23": true, "3.4.31": false, "3.5.12": true, "3.5.13": false, "3.6.0": false, "3.3.1": true, "": false} {
		assert.Equal(t, faulty, mayKeepLostLeases(version), version)
	}
}
