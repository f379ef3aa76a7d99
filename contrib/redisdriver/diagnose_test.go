package redisdriver

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func diagnosed(t *testing.T, dsn string) (found doctortest.Findings) {
	t.Helper()
	c, err := Driver{}.OpenConnector(asNew(dsn))
	require.NoError(t, err)
	require.Empty(t, logged(func() { found = doctortest.Run(t, c) }), "what the doctor reports need not be logged")
	return found
}

func TestDiagnoseOfAHealthyServer(t *testing.T) {
	server := redistest.Start(t, redistest.Durable(), redistest.With("user app on >geheim ~* &* +@all"))
	found := diagnosed(t, "redis://app:geheim@"+server.Addr())
	found.Healthy(t)
	product := "Redis 7"
	if strings.Contains(server.Do("INFO", "server").(string), "valkey_version:") {
		product = "Valkey "
	}
	found.Has(t, driver.CheckSettings, driver.OK, product, "")
	diagnosed(t, "unix://app:geheim@"+server.Socket()).Healthy(t)
	require.ElementsMatch(t, []any{"{dlock}:seq", "{dlock}:floor", "{dlock}:gen"}, server.Do("KEYS", "*"))

	server.Do("SET", "{dlock}:seq", strconv.Itoa(lastSequence-1000))
	diagnosed(t, "redis://app:geheim@"+server.Addr()).Has(t, driver.CheckSequences, driver.Warning, "of 9007199254740991", "another namespace")
	server.Do("SET", "{dlock}:seq", strconv.Itoa(lastSequence))
	diagnosed(t, "redis://app:geheim@"+server.Addr()).Ends(t, driver.CheckRights, "used up", "")

	replica, _ := newReplica(t, server)
	diagnosed(t, "redis://"+replica.Addr()+"?session_timeout=1s").Ends(t, driver.CheckSettings, "READONLY", "the address of the master")
	diagnosed(t, "redis://app:geheim@"+server.Addr()+"?namespace=x").Has(t, driver.CheckSettings, driver.Warning, "1 replicas, and 0 confirm", "the parameter replicas")
}

func TestDiagnoseOfNetworksThatFail(t *testing.T) {
	doctortest.Network(t, func(t *testing.T, host string) driver.Connector {
		c, err := Driver{}.OpenConnector("redis://me:geheim@" + host + "?empty_is_new=true&session_timeout=1s")
		require.NoError(t, err)
		return c
	})
	doctortest.TLS(t, func(t *testing.T, host, ca string) driver.Connector {
		c, err := Driver{}.OpenConnector("rediss://me:geheim@" + host + "?session_timeout=1s&tls_ca=" + ca)
		require.NoError(t, err)
		return c
	}, nil)
}

func TestDiagnoseOfAServerThatWantsAClientCertificate(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := redistest.Start(t, redistest.WithTLS(certs), redistest.With("tls-auth-clients yes"), redistest.Durable())
	trusted := "rediss://" + server.SecureAddr() + "?session_timeout=5s&tls_ca=" + certs.CA
	diagnosed(t, trusted).Ends(t, driver.CheckTLS, "tls", "client certificate")
	diagnosed(t, trusted+"&tls_cert="+certs.Client.Cert+"&tls_key="+certs.Client.Key).Has(t, driver.CheckTLS, driver.Warning, "the certificate of this client expires", "renew it")
	diagnosed(t, "redis://"+server.SecureAddr()+"?session_timeout=1s").Ends(t, driver.CheckLogin, "", "")
}

func TestDiagnoseOfUsersAndRights(t *testing.T) {
	const rights = " +@connection +@scripting +@read +@write +@sortedset +@hash +info +time +publish +subscribe"
	server := redistest.Start(t, redistest.With("requirepass hunter2",
		"user quiet on >geheim ~{dlock}:* &{dlock}:*"+rights,
		"user keys on >geheim ~other:* &* +@all", "user commands on >geheim ~* &* +@all -evalsha",
		"user channels on >geheim ~* &other +@all", "user scripts on >geheim ~* &* +@all -zadd"))
	for _, user := range []string{"keys", "commands", "channels", "scripts"} {
		diagnosed(t, "redis://"+user+":geheim@"+server.Addr()).Ends(t, driver.CheckRights, "", "ACL SETUSER")
	}
	diagnosed(t, "redis://keys:geheimer@"+server.Addr()).Ends(t, driver.CheckLogin, "WRONGPASS", "the user and the password")
	diagnosed(t, "redis://"+server.Addr()).Ends(t, driver.CheckLogin, "NOAUTH", "the user and the password")
	found := diagnosed(t, "redis://quiet:geheim@"+server.Addr())
	found.Healthy(t, driver.CheckSettings)
	found.Has(t, driver.CheckSettings, driver.Unknown, "CONFIG GET", "+config|get")
}

func TestDiagnoseOfSettingsAndClock(t *testing.T) {
	redistest.RequireClock(t)
	server := redistest.Start(t, redistest.WithClock())
	dsn := "redis://" + server.Addr() + "?session_timeout=2s"
	server.Do("CONFIG", "SET", "maxmemory", "1gb")
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	diagnosed(t, dsn).Has(t, driver.CheckSettings, driver.Problem, "maxmemory-policy allkeys-lru", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory", "1")
	diagnosed(t, dsn).Ends(t, driver.CheckSettings, "OOM", "maxmemory")
	server.Do("CONFIG", "SET", "maxmemory", "0")
	diagnosed(t, dsn).Has(t, driver.CheckTimeout, driver.Warning, "2s", "10s")
	server.SetClock(time.Hour)
	diagnosed(t, dsn).Has(t, driver.CheckClock, driver.Warning, "ahead of this machine's", "NTP")
}

func TestDiagnoseOfSentinels(t *testing.T) {
	master := redistest.Start(t, redistest.Durable())
	sentinel := redistest.StartSentinel(t, "locks", master, redistest.With("requirepass geheim"))
	at := "redis://:geheim@" + sentinel.Addr() + "?session_timeout=5s"
	diagnosed(t, at+"&master_name=locks").Has(t, driver.CheckSettings, driver.OK, "a master with 0 replicas; grace 5s", "")
	diagnosed(t, at+"&master_name=others").Ends(t, driver.CheckLogin, `no Sentinel knows the master "others"`, "correct master_name")
	diagnosed(t, strings.Replace(at, "geheim", "geheimer", 1)+"&master_name=locks").Ends(t, driver.CheckLogin, "WRONGPASS", "the user and the password")
	diagnosed(t, at).Ends(t, driver.CheckLogin, "unknown command", "add master_name")
	diagnosed(t, "redis://"+master.Addr()+"?session_timeout=5s&master_name=locks").Ends(t, driver.CheckLogin, "unknown command", "no Sentinel")
	master.Kill()
	diagnosed(t, at+"&master_name=locks").Ends(t, driver.CheckLogin, master.Addr()+": connect: connection refused", "is the store")
}

// The first session in a new store waits for a grace period. Most users run
// dlock doctor on a new store, so it must not report the wait as a problem.
func TestDiagnoseOfANewServerWaitsForItsGrace(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a grace")
	}
	t.Parallel()
	c, err := Driver{}.OpenConnector("redis://" + redistest.Start(t).Addr() + "?session_timeout=12s")
	require.NoError(t, err)
	found := doctortest.Run(t, c)
	found.Healthy(t)
	found.Has(t, driver.CheckLogin, driver.OK, "after a grace of 12", "")
}
