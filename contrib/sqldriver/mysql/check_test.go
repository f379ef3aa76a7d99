package mysql

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/mysqltest"
)

func checked(t *testing.T, dsn string) doctortest.Findings {
	t.Helper()
	return doctortest.Check(t, Driver{}, dsn)
}

func TestCheckOfAHealthyServer(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	checked(t, server.DSN(database)).Has(t, driver.OK, "room for", "")
	assert.Equal(t, "0", server.SQL(t, database, "SELECT (SELECT COUNT(*) FROM dlock_node) + (SELECT COUNT(*) FROM dlock_queue) + (SELECT COUNT(*) FROM dlock_session)"))
	server.SQL(t, database, "UPDATE dlock_meta SET floor = 990000000000000000")
	checked(t, server.DSN(database)).Has(t, driver.Warning, "of at most 999999999999999999", "another database")
}

func TestCheckOfUsersAndRights(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	user := "weak_" + database
	server.SQL(t, "", "CREATE USER "+user+"@'%' IDENTIFIED BY 'correct-horse'")
	dsn := strings.Replace(server.DSN(database, "session_timeout=10s"), "dlock:", user+":", 1)
	checked(t, dsn).Has(t, driver.Problem, "GRANT SELECT", "run the statements")
	server.SQL(t, "", "GRANT SELECT ON "+database+".* TO "+user+"@'%'")
	checked(t, dsn).Has(t, driver.Problem, "CREATE command denied", "run the statements")
	server.SQL(t, "", Statements(database)+grants(database, user+"@'%'"))
	checked(t, dsn).Has(t, driver.OK, "room for", "")
}

func TestCheckOfSettingsOfTheServer(t *testing.T) {
	server := mysqltest.Start(t, mysqltest.WithConfig("log_bin=binlog", "max_connections=10"))
	database := server.Database()
	db := openDB(t, server, database)
	for range 4 { // the server accepts 10
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
	}
	checked(t, server.DSN(database, "session_timeout=10s")).Has(t, driver.Warning, "more connections", "max_connections")
	server.SQL(t, "", "SET GLOBAL max_connections = 100")
	checked(t, server.DSN(database, "session_timeout=10s")).Healthy(t)
	server.SQL(t, "", "SET GLOBAL binlog_format = 'STATEMENT'")
	checked(t, server.DSN(database, "session_timeout=10s")).Has(t, driver.Problem, "binlog_format STATEMENT", "change the setting")
	server.SQL(t, "", "SET GLOBAL binlog_format = 'ROW', GLOBAL read_only = 1")
	checked(t, server.DSN(database, "session_timeout=10s")).Has(t, driver.Problem, "read_only ON", "the primary of this replica")
}

func TestCheckOfOtherClients(t *testing.T) {
	server := mysqltest.Start(t)
	database := server.Database()
	sqltest.CheckOfOthers(t, Driver{}, func(params ...string) string { return server.DSN(database, params...) }, openDB(t, server, database),
		"START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT CONNECTION_ID()")
}

func TestCheckOfAReplica(t *testing.T) {
	if testing.Short() {
		t.Skip("servers take seconds to start")
	}
	primary := mysqltest.Start(t, mysqltest.WithConfig("log_bin=binlog", "sync_binlog=1", "server_id=1"))
	database := primary.Database()
	checked(t, primary.DSN(database, "session_timeout=10s")).Healthy(t)
	replica := primary.Replica(t)
	checked(t, replica.DSN(database)).Has(t, driver.Problem, "read_only ON", "the primary of this replica")
	checked(t, primary.DSN(database, "session_timeout=10s")).Has(t, driver.Warning, "has replicas", "fencing tokens")
}

func TestCheckOfAGaleraMember(t *testing.T) {
	if testing.Short() {
		t.Skip("servers take seconds to start")
	}
	mysqltest.RequireGalera(t)
	server := mysqltest.Start(t, mysqltest.WithGalera())
	checked(t, server.DSN(server.Database(), "session_timeout=10s")).Has(t, driver.Warning, "Galera", "one member")
}
