package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func checked(t *testing.T, dsn string) doctortest.Findings {
	t.Helper()
	return doctortest.Check(t, Driver{}, dsn)
}

func TestCheckOfAHealthyServer(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	checked(t, server.DSN("schema="+schema)).Has(t, driver.OK, "room for", "")
	left := server.SQL(t, "SELECT (SELECT count(*) FROM "+schema+".node) + (SELECT count(*) FROM "+schema+".queue) + (SELECT count(*) FROM "+schema+".session)")
	assert.Equal(t, "0", left)
	server.SQL(t, "SELECT setval('"+schema+".counter', 950000000000000000)")
	checked(t, server.DSN("schema="+schema)).Has(t, driver.Warning, schema+".counter has room for 4999999999999999", "another schema")
}

func TestCheckOfUsersAndRights(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	user := schema + "_weak"
	server.SQL(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'correct-horse'")
	dsn := strings.Replace(server.DSN("schema="+schema), "dlock:", user+":", 1)
	checked(t, dsn).Has(t, driver.Problem, `CREATE SCHEMA IF NOT EXISTS "`+schema, "run the statements")
	server.SQL(t, Statements(schema))
	checked(t, dsn).Has(t, driver.Problem, `GRANT USAGE ON SCHEMA "`+schema, "run the statements")
	server.SQL(t, grants(schema, user))
	checked(t, dsn).Has(t, driver.OK, "room for", "")
	checked(t, server.DSN("schema="+server.Schema(), "options=-c%20default_transaction_isolation%3Dserializable")).Has(t, driver.Problem, "isolation level", "default_transaction_isolation")
	checked(t, server.DSN("schema="+server.Schema(), "options=-c%20default_transaction_read_only%3Don")).Has(t, driver.Problem, "", "default_transaction_read_only")
}

func TestCheckOfSettingsOfTheServer(t *testing.T) {
	found := serverSettings{version: "17", fsync: "off", fullPages: "off", standbys: 1}.weaknesses()
	for text, advice := range map[string]string{"fsync off": "fsync=on", "full_page_writes off": "full_page_writes=on", "asynchronous standbys": "synchronous_standby_names"} {
		doctortest.Findings(found).Has(t, driver.Warning, text, advice)
	}
	for _, s := range []serverSettings{
		{fsync: "on", fullPages: "on", standbys: 1, synchronous: "a", commit: "local"}, // heartbeats still wait for the standby
		{fsync: "on", fullPages: "on", commit: "on"},
	} {
		if found := s.weaknesses(); len(found) > 0 {
			t.Errorf("%v", found)
		}
	}
}

func TestCheckOfOtherClients(t *testing.T) {
	server := pgtest.Start(t)
	db := openDB(t, server)
	sqltest.CheckOfOthers(t, Driver{}, server.DSN, db, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", "SELECT pg_backend_pid()")
}

func TestCheckOfAWeakServer(t *testing.T) {
	server := pgtest.Start(t, pgtest.WithConfig("fsync=off", "full_page_writes=off", "max_connections=11"))
	found := checked(t, server.DSN("session_timeout=1s"))
	for text, advice := range map[string]string{"fsync off": "fsync=on", "full_page_writes off": "full_page_writes=on", "more connections": "max_connections"} {
		found.Has(t, driver.Warning, text, advice)
	}
	standby := server.Standby(t)
	checked(t, standby.DSN("session_timeout=1s")).Has(t, driver.Problem, "standby mode", "the primary")
	eventually(t, func() bool { return server.SQL(t, "SELECT count(*) FROM pg_stat_replication") == "1" })
	checked(t, server.DSN("session_timeout=2s")).Has(t, driver.Warning, "asynchronous standbys", "synchronous_standby_names")
}

func TestCheckOfAProxyThatPoolsTransactions(t *testing.T) {
	server := pgtest.Shared(t)
	found := checked(t, server.DSNAt(server.Pgbouncer(t, 20), "schema="+server.Schema(), "session_timeout=4s", "default_query_exec_mode=exec"))
	found.Has(t, driver.Warning, "notices do not arrive", "notify=false")
}
