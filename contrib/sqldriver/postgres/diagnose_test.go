package postgres

import (
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func diagnosed(t *testing.T, dsn string) doctortest.Findings {
	t.Helper()
	c, err := Driver{}.OpenConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return doctortest.Run(t, c)
}

func TestDiagnoseOfAHealthyServer(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	found := diagnosed(t, server.DSN("schema="+schema, "session_timeout=10s"))
	found.Healthy(t, driver.CheckSettings) // tests run without fsync
	left := server.SQL(t, "SELECT (SELECT count(*) FROM "+schema+".node) + (SELECT count(*) FROM "+schema+".queue) + (SELECT count(*) FROM "+schema+".session)")
	if left != "0" {
		t.Errorf("%s rows stay", left)
	}
	server.SQL(t, "SELECT setval('"+schema+".counter', 950000000000000000)")
	diagnosed(t, server.DSN("schema="+schema)).Has(t, driver.CheckSequences, driver.Warning, schema+".counter has room for 4999999999999999", "another schema")
}

func TestDiagnoseOfADatabaseOfTheProgram(t *testing.T) {
	server := pgtest.Shared(t)
	db, err := sql.Open("pgx", strings.Split(server.DSN(), "?")[0]+"?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := NewConnector(db, Options{EmptyIsNew: true, Schema: server.Schema()})
	if err != nil {
		t.Fatal(err)
	}
	found := doctortest.Run(t, c)
	found.Healthy(t, driver.CheckSettings)
	found.Has(t, driver.CheckResolve, driver.OK, "*sql.DB", "")
}

func TestDiagnoseOfNetworksThatFail(t *testing.T) {
	doctortest.Network(t, func(t *testing.T, host string) driver.Connector {
		c, err := Driver{}.OpenConnector("postgres://me:geheim@" + host + "/shop?sslmode=disable&session_timeout=1s")
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
	secure := func(host, mode, ca string) (driver.Connector, error) {
		return Driver{}.OpenConnector("postgres://me:geheim@" + host + "/shop?sslmode=" + mode + "&session_timeout=1s&sslrootcert=" + ca)
	}
	certs := testenv.NewCerts(t)
	serve := func(pair testenv.Pair) string { return serveTLS(t, pair) }
	for name, c := range map[string]struct {
		server       testenv.Pair
		ca           string
		text, advice string
	}{
		"unknown authority": {certs.Server, certs.OtherCA, "unknown authority", "sslrootcert"},
		"another host":      {certs.OtherHost, certs.CA, "IP SANs", "has"},
		"expired":           {certs.Expired, certs.CA, "expired", "renew the certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			connector, err := secure(serve(c.server), "verify-full", c.ca)
			if err != nil {
				t.Fatal(err)
			}
			doctortest.Run(t, connector).Ends(t, driver.CheckTLS, c.text, c.advice)
		})
	}
	t.Run("no TLS", func(t *testing.T) {
		diagnosed(t, strings.Replace(pgtest.Shared(t).DSN(), "sslmode=disable", "sslmode=require", 1)).Ends(t, driver.CheckTLS, "has no TLS", "turn TLS off")
		server := pgtest.Shared(t)
		diagnosed(t, strings.Replace(server.DSN("schema="+server.Schema(), "session_timeout=10s"), "sslmode=disable", "sslmode=prefer", 1)).Healthy(t, driver.CheckSettings)
	})
}

// serveTLS starts a fake server that speaks only the part of the protocol that
// starts TLS, and returns its address.
func serveTLS(t *testing.T, pair testenv.Pair) string {
	return doctortest.ServeTLS(t, pair, func(c net.Conn) error {
		var request [8]byte
		if _, err := io.ReadFull(c, request[:]); err != nil || binary.BigEndian.Uint32(request[4:]) != 80877103 {
			return io.ErrUnexpectedEOF
		}
		_, err := c.Write([]byte("S"))
		return err
	})
}

func TestDiagnoseOfUsersAndRights(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	user := schema + "_weak"
	server.SQL(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'correct-horse'")
	dsn := strings.Replace(server.DSN("schema="+schema), "dlock:", user+":", 1)
	diagnosed(t, dsn).Ends(t, driver.CheckRights, "CREATE SCHEMA IF NOT EXISTS "+schema, "run the statements")
	server.SQL(t, Statements(schema))
	diagnosed(t, dsn).Ends(t, driver.CheckRights, "GRANT USAGE ON SCHEMA "+schema, "run the statements")
	server.SQL(t, grants(schema, user))
	diagnosed(t, dsn).Healthy(t, driver.CheckSettings)
	server.SQL(t, "REVOKE DELETE ON "+schema+".node FROM "+user)
	diagnosed(t, dsn).Has(t, driver.CheckRights, driver.Problem, "permission denied for table node", "run the statements")
	diagnosed(t, strings.Replace(server.DSN(), server.Password(), "geheim", 1)).Ends(t, driver.CheckLogin, "password authentication failed", "the user and the password")
	diagnosed(t, strings.Replace(server.DSN(), "/postgres?", "/missing?", 1)).Ends(t, driver.CheckLogin, "does not exist", "create the database")
	diagnosed(t, server.DSN("schema="+server.Schema(), "options=-c%20default_transaction_isolation%3Dserializable")).Ends(t, driver.CheckSettings, "isolation level", "default_transaction_isolation")
	diagnosed(t, server.DSN("schema="+server.Schema(), "options=-c%20default_transaction_read_only%3Don")).Ends(t, driver.CheckSettings, "", "default_transaction_read_only")
}

func TestDiagnoseOfSettingsOfTheServer(t *testing.T) {
	found := serverSettings{version: "17", fsync: "off", fullPages: "off", standbys: 1, connections: 3}.weaknesses()
	for text, advice := range map[string]string{"fsync off": "fsync=on", "full_page_writes off": "full_page_writes=on", "asynchronous standbys": "synchronous_standby_names", "3 more connections": "max_connections"} {
		doctortest.Findings(found).Has(t, driver.CheckSettings, driver.Warning, text, advice)
	}
	for _, s := range []serverSettings{
		{fsync: "on", fullPages: "on", standbys: 1, synchronous: "a", commit: "local", connections: 100}, // heartbeats wait nevertheless
		{fsync: "on", fullPages: "on", commit: "on", connections: 100},
	} {
		if found := s.weaknesses(); len(found) > 0 {
			t.Errorf("%v", found)
		}
	}
}

// The server has every weakness that a diagnosis reports, and its clock is
// ahead.
func TestDiagnoseOfAWeakServer(t *testing.T) {
	pgtest.RequireClock(t)
	server := pgtest.Start(t, pgtest.WithClock(), pgtest.WithConfig("fsync=off", "full_page_writes=off", "max_connections=12"))
	server.SetClock(time.Hour)
	found := diagnosed(t, server.DSN("session_timeout=1s"))
	found.Has(t, driver.CheckClock, driver.Warning, "ahead of this machine's", "NTP")
	found.Has(t, driver.CheckTimeout, driver.Warning, "1s", "10s")
	for text, advice := range map[string]string{"fsync off": "fsync=on", "full_page_writes off": "full_page_writes=on", "more connections": "max_connections"} {
		found.Has(t, driver.CheckSettings, driver.Warning, text, advice)
	}
	standby := server.Standby(t)
	diagnosed(t, standby.DSN("session_timeout=1s")).Ends(t, driver.CheckSettings, "standby mode", "the primary")
	for end := time.Now().Add(time.Minute); server.SQL(t, "SELECT count(*) FROM pg_stat_replication") != "1"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the standby does not follow")
		}
	}
	diagnosed(t, server.DSN("session_timeout=2s")).Has(t, driver.CheckSettings, driver.Warning, "asynchronous standbys", "synchronous_standby_names")
}

func TestDiagnoseOfAProxyThatPoolsTransactions(t *testing.T) {
	server := pgtest.Shared(t)
	found := diagnosed(t, server.DSNAt(server.Pgbouncer(t, 20), "schema="+server.Schema(), "session_timeout=4s", "default_query_exec_mode=exec"))
	found.Has(t, driver.CheckRights, driver.OK, "took and released", "")
	found.Has(t, driver.CheckSettings, driver.Warning, "notices do not arrive", "notify=false")
}
