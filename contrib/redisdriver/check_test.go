package redisdriver

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func checked(t *testing.T, dsn string) (found doctortest.Findings) {
	t.Helper()
	c, err := Driver{}.OpenConnector(asNew(dsn))
	require.NoError(t, err)
	require.Empty(t, logged(func() { found = doctortest.Run(t, c) }), "what the doctor reports need not be logged")
	return found
}

func TestCheckOfAHealthyServer(t *testing.T) {
	server := redistest.Start(t, redistest.Durable(), redistest.With("user app on >geheim ~* &* +@all"))
	found := checked(t, "redis://app:geheim@"+server.Addr())
	found.Healthy(t)
	product := "Redis 7"
	if strings.Contains(server.Do("INFO", "server").(string), "valkey_version:") {
		product = "Valkey "
	}
	found.Has(t, driver.OK, product, "")
	checked(t, "unix://app:geheim@"+server.Socket()).Healthy(t)

	server.Do("SET", "{dlock}:seq", strconv.Itoa(lastSequence-1000))
	checked(t, "redis://app:geheim@"+server.Addr()).Has(t, driver.Warning, "of 9007199254740991", "another namespace")

	replica, _ := newReplica(t, server)
	checked(t, "redis://"+replica.Addr()+"?session_timeout=1s").Has(t, driver.Problem, "READONLY", "the address of the master")
	checked(t, "redis://app:geheim@"+server.Addr()+"?namespace=x").Has(t, driver.Warning, "1 replicas, and 0 confirm", "the parameter replicas")
}

func TestCheckOfUsersAndRights(t *testing.T) {
	const rights = " +@connection +@scripting +@read +@write +@sortedset +@hash +info +time +publish +subscribe"
	server := redistest.Start(t, redistest.With("requirepass hunter2",
		"user quiet on >geheim ~{dlock}:* &{dlock}:*"+rights,
		"user keys on >geheim ~other:* &* +@all", "user commands on >geheim ~* &* +@all -evalsha"))
	for _, user := range []string{"keys", "commands"} {
		checked(t, "redis://"+user+":geheim@"+server.Addr()).Has(t, driver.Problem, "", "ACL SETUSER")
	}
	checked(t, "redis://quiet:geheim@"+server.Addr()).Has(t, driver.Unknown, "CONFIG GET", "+config|get")
}

func TestCheckOfMemory(t *testing.T) {
	server := redistest.Start(t)
	dsn := "redis://" + server.Addr() + "?session_timeout=2s"
	server.Do("CONFIG", "SET", "maxmemory", "1gb")
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	checked(t, dsn).Has(t, driver.Problem, "maxmemory-policy allkeys-lru", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory", "1")
	checked(t, dsn).Has(t, driver.Problem, "OOM", "maxmemory")
}

func TestCheckOfSentinels(t *testing.T) {
	master := redistest.Start(t, redistest.Durable())
	sentinel := redistest.StartSentinel(t, "locks", master, redistest.With("requirepass geheim"))
	at := "redis://:geheim@" + sentinel.Addr() + "?session_timeout=5s"
	checked(t, at+"&master_name=locks").Has(t, driver.OK, "a master with 0 replicas; grace 5s", "")
	file := sentinel.Write("password", "geheim\n")
	checked(t, "redis://"+sentinel.Addr()+"?session_timeout=5s&master_name=locks&sentinel_password_file="+file).Has(t, driver.OK, "a master with 0 replicas", "")
	_, err := testenv.Connect(t, Driver{}, "redis://"+sentinel.Addr()+"?master_name=locks&sentinel_password_file=/missing")
	require.ErrorContains(t, err, sentinel.Addr()+": sentinel_password_file: stat /missing: no such file")
	checked(t, at+"&master_name=others").Has(t, driver.Problem, `no Sentinel knows the master "others"`, "correct master_name")
	checked(t, at).Has(t, driver.Problem, "unknown command", "add master_name")
	checked(t, "redis://"+master.Addr()+"?session_timeout=5s&master_name=locks").Has(t, driver.Problem, "unknown command", "no Sentinel")
}
