package mysql

import (
	"database/sql"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/mysqltest"
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
	server := mysqltest.Shared(t)
	database := server.Database()
	diagnosed(t, server.DSN(database, "session_timeout=10s")).Healthy(t, driver.CheckSettings) // tests run without syncs
	if left := server.SQL(t, database, "SELECT (SELECT COUNT(*) FROM dlock_node) + (SELECT COUNT(*) FROM dlock_queue) + (SELECT COUNT(*) FROM dlock_session)"); left != "0" {
		t.Errorf("%s rows stay", left)
	}
	if server.SQL(t, database, "SELECT floor > 1000000 FROM dlock_meta") != "1" {
		t.Error("a queue of the same name could repeat its tokens")
	}
	server.SQL(t, database, "UPDATE dlock_meta SET floor = 990000000000000000")
	diagnosed(t, server.DSN(database, "session_timeout=10s")).Has(t, driver.CheckSequences, driver.Warning, "of at most 999999999999999999", "another database")
}

func TestDiagnoseOfADatabaseOfTheProgram(t *testing.T) {
	server := mysqltest.Shared(t)
	db, err := sql.Open("mysql", server.DSN(server.Database()))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := NewConnector(db, Options{EmptyIsNew: true})
	if err != nil {
		t.Fatal(err)
	}
	found := doctortest.Run(t, c)
	found.Healthy(t, driver.CheckSettings)
	found.Has(t, driver.CheckResolve, driver.OK, "*sql.DB", "")
}

// greet plays a TLS-capable server up to the handshake: it sends a greeting and
// reads the client's SSLRequest.
func greet(c net.Conn) error {
	greeting := append([]byte{10}, "8.4.0\x00"...)
	greeting = append(greeting, make([]byte, 4+8+1)...)
	greeting = append(greeting, 0xff, 0xff, 45, 2, 0, 0xff, 0xff, 21)
	greeting = append(greeting, make([]byte, 10+13)...)
	if _, err := c.Write(append([]byte{byte(len(greeting)), 0, 0, 0}, greeting...)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 36))
	return err
}

func TestDiagnoseOfNetworksThatFail(t *testing.T) {
	open := func(t *testing.T, host, params string) driver.Connector {
		c, err := Driver{}.OpenConnector("me:geheim@tcp(" + host + ")/shop?session_timeout=1s" + params)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	doctortest.Network(t, func(t *testing.T, host string) driver.Connector { return open(t, host, "") })
	doctortest.TLS(t, func(t *testing.T, host, ca string) driver.Connector {
		return open(t, host, "&tls=true&tls_ca="+url.QueryEscape(ca))
	}, greet)
	t.Run("no TLS", func(t *testing.T) {
		server := mysqltest.Shared(t)
		diagnosed(t, server.DSN(server.Database(), "tls=skip-verify")).Ends(t, driver.CheckTLS, "has no TLS", "turn TLS off")
		diagnosed(t, server.DSN(server.Database(), "session_timeout=10s", "tls=preferred")).Healthy(t, driver.CheckSettings)
	})
	for _, greeting := range []string{"\x00\x00\x00\x00", "\x01\x00\x00\x00\x0a", "\x05\x00\x00\x00\xff\x10\x04ab", "\xff\xff\xff\x00", "\x03\x00\x00\x00\x0a\x00\x00"} {
		conn := doctortest.Listen(t, func(c net.Conn) { _, _ = io.WriteString(c, greeting) })
		doctortest.Run(t, open(t, conn, "&tls=true")).Ends(t, driver.CheckTLS, "", "TLS")
	}
}

func TestDiagnoseOfUsersAndRights(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	user := "weak_" + database
	server.SQL(t, "", "CREATE USER "+user+"@'%' IDENTIFIED BY 'correct-horse'")
	dsn := strings.Replace(server.DSN(database, "session_timeout=10s"), "dlock:", user+":", 1)
	diagnosed(t, dsn).Ends(t, driver.CheckRights, "GRANT SELECT", "run the statements")
	server.SQL(t, "", "GRANT SELECT ON "+database+".* TO "+user+"@'%'")
	diagnosed(t, dsn).Ends(t, driver.CheckRights, "CREATE command denied", "run the statements")
	server.SQL(t, "", Statements(database)+grants(database, user+"@'%'"))
	diagnosed(t, dsn).Healthy(t, driver.CheckSettings)
	server.SQL(t, "", "REVOKE EXECUTE ON PROCEDURE "+database+".dlock_append FROM "+user+"@'%'")
	diagnosed(t, dsn).Ends(t, driver.CheckRights, "denied", "run the statements")
	diagnosed(t, strings.Replace(server.DSN(database, "session_timeout=10s"), server.Password(), "geheim", 1)).Ends(t, driver.CheckLogin, "Access denied", "the user and the password")
}

func TestDiagnoseOfSettingsOfTheServer(t *testing.T) {
	server := mysqltest.Start(t, mysqltest.WithConfig("log_bin=binlog", "max_connections=10"))
	database := server.Database()
	db, err := sql.Open("mysql", server.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 4 { // of 10 connections
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	diagnosed(t, server.DSN(database, "session_timeout=10s")).Has(t, driver.CheckSettings, driver.Warning, "more connections", "max_connections")
	server.SQL(t, "", "SET GLOBAL max_connections = 100")
	diagnosed(t, server.DSN(database, "session_timeout=10s")).Healthy(t)
	diagnosed(t, server.DSN(database, "session_timeout=1s")).Has(t, driver.CheckTimeout, driver.Warning, "1s", "10s")
	server.SQL(t, "", "SET GLOBAL binlog_format = 'STATEMENT'")
	diagnosed(t, server.DSN(database, "session_timeout=10s")).Ends(t, driver.CheckSettings, "binlog_format STATEMENT", "change the setting")
	server.SQL(t, "", "SET GLOBAL binlog_format = 'ROW', GLOBAL read_only = 1")
	diagnosed(t, server.DSN(database, "session_timeout=10s")).Ends(t, driver.CheckSettings, "read_only ON", "the primary of this replica")
}

func TestDiagnoseOfAReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("servers take seconds to start")
	}
	primary := mysqltest.Start(t, mysqltest.WithConfig("log_bin=binlog", "sync_binlog=1", "server_id=1"))
	database := primary.Database()
	diagnosed(t, primary.DSN(database, "session_timeout=10s")).Healthy(t)
	replica := primary.Replica(t)
	diagnosed(t, replica.DSN(database)).Ends(t, driver.CheckSettings, "read_only ON", "the primary of this replica")
	diagnosed(t, primary.DSN(database, "session_timeout=10s")).Has(t, driver.CheckSettings, driver.Warning, "has replicas", "fencing tokens")
}

func TestDiagnoseOfAGaleraMember(t *testing.T) {
	if testing.Short() {
		t.Skip("servers take seconds to start")
	}
	mysqltest.RequireGalera(t)
	server := mysqltest.Start(t, mysqltest.WithGalera())
	diagnosed(t, server.DSN(server.Database(), "session_timeout=10s")).Has(t, driver.CheckSettings, driver.Warning, "Galera", "one member")
}

func TestDiagnoseOfAClockThatIsAhead(t *testing.T) {
	mysqltest.RequireClock(t)
	server := mysqltest.Start(t, mysqltest.WithClock())
	server.SetClock(time.Hour)
	diagnosed(t, server.DSN(server.Database(), "session_timeout=10s")).Has(t, driver.CheckClock, driver.Warning, "ahead of this machine's", "NTP")
}
