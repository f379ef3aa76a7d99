package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Both check the error of Connect, which must contain no password.
var refused, unavailable = sqltest.Refusals(Driver{}, secrets...)

func TestConnectSaysWhatIsWrong(t *testing.T) {
	server := mysqltest.Shared(t)
	database, other := server.Database(), server.Database()
	dsn := server.DSN(database, "session_timeout=10s")
	refused(t, strings.Replace(dsn, server.Password(), secret, 1), "Access denied for user 'dlock'")
	refused(t, server.DSN("missing"), "Unknown database 'missing'")
	refused(t, server.DSN(database, "tls=true"), "server does not support TLS")
	port, err := testenv.FreePort()
	require.NoError(t, err)
	unavailable(t, server.DSNAt(testenv.Loopback(port), database), "connection refused")
	server.SQL(t, "", Statements(database)+"UPDATE dlock_meta SET version = 7")
	refused(t, dsn, "the tables and routines in ", " have layout 7", fmt.Sprint("needs layout ", schemaVersion), "delete these")
	server.SQL(t, "", Statements(other)+"ALTER TABLE dlock_session DROP COLUMN generation")
	refused(t, server.DSN(other, "session_timeout=10s"), "Unknown column 'generation'")
}

func TestServerWithAnotherCertificateIsRefused(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := mysqltest.Start(t, mysqltest.WithTLS(certs.Server))
	database := server.Database()
	dsn := func(ca, name string) string {
		return server.DSN(database, "session_timeout=10s", "tls=true", "tls_server_name="+name, "tls_ca="+url.QueryEscape(ca))
	}
	_, err := testenv.Connect(t, Driver{}, dsn(certs.CA, "localhost"))
	assert.NoError(t, err)
	refused(t, dsn(certs.CA, "other.example"), "certificate")
	refused(t, server.DSN(database, "tls=true"), "certificate")
}

func TestWeaknesses(t *testing.T) {
	got := weaknesses(map[string]string{"wsrep_on": "ON"})
	require.Len(t, got, 1)
	assert.Contains(t, got[0].Text, "the same member")
	for want, settings := range map[string]map[string]string{
		"MySQL 8.0.28, and the driver needs 8.0.29":   {"version": "8.0.28"},
		"MariaDB 10.5.9, and the driver needs 10.6.0": {"version": "10.5.9-MARIADB"},
		"super_read_only 1":                           {"version": "8.4.0", "super_read_only": "1"},
		"sql_safe_updates=0":                          {"version": "8.4.0", "sql_safe_updates": "ON"},
		"several primaries have":                      {"version": "8.4.0", "group_replication_single_primary_mode": "OFF"},
	} {
		err := unusable(settings)
		assert.ErrorContains(t, err, want)
		assert.Equal(t, strings.Contains(want, "read_only"), errors.Is(err, driver.ErrUnavailable), want)
		for name := range settings {
			assert.Contains(t, variables, "'"+name+"'")
		}
	}
}

func TestUserWithoutDDLRightsGetsTheStatements(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	user := "plain_" + database
	server.SQL(t, "", "CREATE USER "+user+"@'%' IDENTIFIED BY 'correct-horse'")
	dsn := strings.Replace(server.DSN(database, "session_timeout=10s"), "dlock:", user+":", 1)
	grant := "GRANT SELECT, INSERT, UPDATE, DELETE ON `" + database + "`.dlock_node TO `" + user + "`@`%`;"
	refused(t, strings.Replace(dsn, database+"?", "missing?", 1), `is "missing" the right name?`)
	refused(t, dsn, "Access denied", "USE `"+database+"`;", grant) // without any privilege on the database

	server.SQL(t, "", "GRANT SELECT ON "+database+".* TO "+user+"@'%'")
	refused(t, dsn, "CREATE command denied", "USE `"+database+"`;", grant)

	server.SQL(t, "", "GRANT CREATE ON "+database+".* TO "+user+"@'%'")
	err := refused(t, dsn, "denied", "CREATE PROCEDURE IF NOT EXISTS dlock_append", grant)
	_, statements, _ := strings.Cut(err.Error(), "Let an operator run:\n")
	server.SQL(t, "", "REVOKE ALL ON "+database+".* FROM "+user+"@'%';"+statements)
	s := testenv.Session(t, Driver{}, dsn)
	_, err = s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	assert.NoError(t, err)
}

func TestManyProcessesMayCreateTheTables(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			_, err := testenv.Connect(t, Driver{}, server.DSN(database, "session_timeout=10s"))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	server.SQL(t, "", Statements(database)) // allowed while sessions exist
}

func openDB(t *testing.T, server *mysqltest.Server, database string, params ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", server.DSN(database, params...))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func handOver(t *testing.T, c driver.Connector) {
	t.Helper()
	var locks []*dlock.RWMutex
	for range 2 {
		client := dlock.NewClient(c)
		defer client.Close()
		locks = append(locks, client.RWMutex("q"))
	}
	held := lock(t, locks[0])
	for i := range 4 {
		next := testenv.LockLater(t, locks[(i+1)%2])
		sqltest.Unlock(t, held)
		before := held.Token()
		if held = <-next; held.Token() <= before {
			t.Errorf("token %d after %d", held.Token(), before)
		}
	}
	sqltest.Unlock(t, held)
}

// The driver must work on a program's pool however the program has configured
// its connections.
func TestExistingDatabase(t *testing.T) {
	server := mysqltest.Shared(t)
	for _, params := range []string{"", "interpolateParams=true&multiStatements=true&parseTime=true&clientFoundRows=true&loc=Europe%2FBerlin",
		"autocommit=0", "tx_isolation=%27SERIALIZABLE%27", "tx_isolation=%27READ-UNCOMMITTED%27",
		"time_zone=%27%2B05:00%27&sql_mode=%27ANSI%2CNO_BACKSLASH_ESCAPES%27", "charset=latin1",
		"completion_type=1", "completion_type=2", "character_set_connection=ucs2", "sql_select_limit=0"} {
		t.Run(params, func(t *testing.T) {
			database := server.Database()
			if params == "character_set_connection=ucs2" {
				server.SQL(t, "", "ALTER DATABASE "+database+" CHARACTER SET utf16")
			}
			db := openDB(t, server, database, params)
			c, err := NewConnector(db, Options{SessionTimeout: 20 * time.Second, EmptyIsNew: true})
			require.NoError(t, err)
			handOver(t, c)
			assert.NoError(t, db.Ping(), "Close of the clients must leave the database open")
			var mode string
			var limit uint64
			err = db.QueryRow("SELECT @@sql_mode, @@sql_select_limit LIMIT 1").Scan(&mode, &limit)
			if err != nil || strings.HasPrefix(params, "time_zone") == !strings.Contains(mode, "ANSI") ||
				strings.HasPrefix(params, "sql_select_limit") != (limit == 0) {
				t.Errorf("sql_mode %q and sql_select_limit %d of a connection of the program, error %v", mode, limit, err)
			}
		})
	}
	t.Run("small", func(t *testing.T) {
		db := openDB(t, server, server.Database())
		db.SetMaxOpenConns(2)
		c, err := NewConnector(db, Options{EmptyIsNew: true})
		require.NoError(t, err)
		_, err = c.Connect(t.Context())
		assert.ErrorContains(t, err, "SetMaxOpenConns")
		sqltest.ClosedDatabase(t, db, c)
	})
	t.Run("no free connection", func(t *testing.T) {
		db := openDB(t, server, server.Database())
		c, err := NewConnector(db, Options{SessionTimeout: time.Hour, EmptyIsNew: true})
		require.NoError(t, err)
		sqltest.AllConnectionsInUse(t, db, c)
	})
	t.Run("Options.Database", func(t *testing.T) {
		db := openDB(t, server, "")
		c, err := NewConnector(db, Options{EmptyIsNew: true})
		require.NoError(t, err)
		_, err = c.Connect(t.Context())
		assert.ErrorContains(t, err, "set Options.Database")
		if c, err = NewConnector(db, Options{Database: server.Database(), EmptyIsNew: true}); err != nil {
			t.Fatal(err)
		}
		handOver(t, c)
	})
}

// A proxy may run each statement of a session on a different connection.
func TestEachStatementOnAnotherConnection(t *testing.T) {
	server := mysqltest.Shared(t)
	db := openDB(t, server, server.Database())
	db.SetMaxIdleConns(-1) // each statement opens a connection
	c, err := NewConnector(db, Options{SessionTimeout: 20 * time.Second, EmptyIsNew: true})
	require.NoError(t, err)
	handOver(t, c)
}

// No statement of the driver may end a transaction that the program left open.
func TestConnectionLeftInATransaction(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	db := openDB(t, server, database)
	c, err := NewConnector(db, Options{SessionTimeout: time.Hour, EmptyIsNew: true})
	require.NoError(t, err)
	s, err := c.Connect(t.Context())
	require.NoError(t, err)
	defer s.Close()
	server.SQL(t, database, "CREATE TABLE work (n int) ENGINE=InnoDB")
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	for _, text := range []string{"START TRANSACTION", "INSERT INTO work VALUES (1)", callText(database, "dlock_append", []any{"s", int64(1), "q", "a-W-", "d"})} {
		_, err = conn.ExecContext(t.Context(), text)
	}
	if err = markError(t.Context(), err); number(err) != 1568 || !isRefused(err) {
		t.Errorf("error %v", err)
	}
	_, err = conn.ExecContext(t.Context(), "COMMIT")
	assert.NoError(t, err)
	conn.Close()
	assert.Equal(t, "1", server.SQL(t, database, "SELECT COUNT(*) FROM work"))
}

func TestBadOptionsAreRefused(t *testing.T) {
	db := new(sql.DB)
	for want, o := range map[string]Options{
		"Options.Database":       {Database: strings.Repeat("d", 300)},
		"Options.SessionTimeout": {SessionTimeout: time.Millisecond},
		"Options.Grace":          {Grace: 5 * time.Second},
	} {
		_, err := NewConnector(db, o)
		assert.ErrorContains(t, err, want)
	}
	_, err := NewConnector(nil, Options{})
	assert.Error(t, err, "no error for a nil database")
}

func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	dsn := server.DSN(server.Database(), "session_timeout=3s")
	history.KilledUnderLoad(t, server, func() (*dlock.Client, error) { return dlock.Open("mysql", dsn) })
}

func create(t *testing.T, s driver.Session, queue string) driver.Joined {
	t.Helper()
	j, err := s.Create(t.Context(), queue, driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	require.NoError(t, err)
	return j
}

func begun(t *testing.T, c *caseStore) *sql.Tx {
	t.Helper()
	tx, err := c.Admin.Begin()
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func lockRows(t *testing.T, tx *sql.Tx, text string, args ...any) {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), text, args...)
	require.NoError(t, err)
	for rows.Next() {
	}
	require.NoError(t, errors.Join(rows.Err(), rows.Close()))
}

// waits counts the transactions that wait for row locks. MySQL refreshes
// innodb_trx too rarely.
func waits(t *testing.T, server *mysqltest.Server) string {
	t.Helper()
	return server.SQL(t, "", "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_row_lock_current_waits'")
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute: %s", what)
		}
	}
}

// Operators may set extreme deadlines, to end a session or to keep it alive.
func TestDeadlineOfAnotherSessionByHand(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	for deadline, passed := range map[int64]bool{math.MinInt64: true, -2: true, math.MaxInt64: false} {
		c.Exec(t, callText(c.database, "dlock_begin", []any{"A7", int64(0), int64(0), true, int64(0)}))
		c.Exec(t, fmt.Sprint("UPDATE dlock_lease SET deadline = ", deadline, " WHERE session = 'A7'"))
		if next, err := s.Store().Beat(t.Context()); err != nil || next <= 0 != passed {
			t.Errorf("%d: a heartbeat says that a deadline comes in %v, error %v", deadline, next, err)
		}
		if ended, err := s.Requests.Expire(t.Context()); err != nil || ended != passed {
			t.Errorf("%d: the session is ended: %v, error %v", deadline, ended, err)
		}
		c.Exec(t, callText(c.database, "dlock_end", []any{"A7"}))
	}
}

func TestChangeByHandIsNoticed(t *testing.T) {
	sqltest.ByHand(t, func(t *testing.T) (driver.Connector, func(string)) {
		c := newCaseWith(t, "session_timeout=1h")
		return c.connector(), func(text string) { c.Exec(t, strings.Replace(text, "NAME", c.database, 1)) }
	}, []string{"DELETE FROM dlock_session WHERE id = ID"},
		[]string{"DELETE FROM dlock_node", "TRUNCATE dlock_node"},
		[]string{"DELETE FROM dlock_lease", "DROP TABLE dlock_lease", "DROP DATABASE NAME"})
}

func TestCancelWaitsForAppendsThatRun(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	c.Exec(t, "INSERT INTO dlock_queue (name, last, used) VALUES ('q', 1, 1)")
	blocker := begun(t, c)
	lockRows(t, blocker, "SELECT * FROM dlock_queue WHERE name = 'q' FOR UPDATE")
	var all sync.WaitGroup
	all.Go(func() {
		c.Exec(t, callText(c.database, "dlock_append", []any{s.ID(), int64(1), "q", "late-W-", "2"}))
	})
	eventually(t, "the append does not wait", func() bool { return waits(t, c.server) == "1" })
	done := make(chan struct{})
	all.Go(func() {
		c.Exec(t, callText(c.database, "dlock_cancel", []any{s.ID(), int64(2), "2"}))
		close(done)
	})
	eventually(t, "the cancellation does not wait", func() bool {
		select {
		case <-done:
			return true
		default:
			return waits(t, c.server) == "2"
		}
	})
	require.NoError(t, blocker.Rollback())
	all.Wait()
	if nodes, err := s.List(t.Context(), "q"); err != nil || len(nodes) > 0 {
		t.Errorf("nodes %v, error %v", nodes, err)
	}
}

func TestHeartbeatDoesNotWaitForChanges(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	blocker := begun(t, c)
	lockRows(t, blocker, "SELECT * FROM dlock_session WHERE id = ? FOR UPDATE", s.ID())
	_, err := s.Store().Beat(t.Context())
	assert.NoError(t, err)
}

// The variable timestamp turns one connection's clock back to the year 2001.
func TestTokensRiseAlthoughTheClockFallsAndTheQueueWasRemoved(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	old := openDB(t, c.server, c.database, "timestamp=1000000000")
	last := create(t, s, "q").Token
	appendOld := func() {
		t.Helper()
		var status, name string
		var token, own, created int64
		row := old.QueryRow(callText(c.database, "dlock_append", []any{s.ID(), int64(1), "q", "b-W-", "y"}))
		if err := row.Scan(&status, &token, &name, &own, &created); err != nil || status != "ok" || token <= last {
			t.Fatalf("status %q, token %d after %d, error %v", status, token, last, err)
		}
		last = token
	}
	appendOld()
	c.Exec(t, "DELETE FROM dlock_node")
	c.Exec(t, "CALL dlock_tidy()")
	assert.Equal(t, "1", c.server.SQL(t, c.database, "SELECT COUNT(*) FROM dlock_queue"))
	appendOld()
	c.Exec(t, "UPDATE dlock_queue SET used = used - 3")
	c.Exec(t, "CALL dlock_tidy()")
	assert.Equal(t, "1", c.server.SQL(t, c.database, "SELECT COUNT(*) FROM dlock_queue"))
	c.Exec(t, "DELETE FROM dlock_node")
	c.Exec(t, "CALL dlock_tidy()")
	assert.Equal(t, "0", c.server.SQL(t, c.database, "SELECT COUNT(*) FROM dlock_queue"))
	appendOld()
}

func TestRowsOfOldQueuesAreRemoved(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	create(t, s, "held")
	create(t, s, "old")
	c.Exec(t, "UPDATE dlock_queue SET used = used - 3")
	s.Delete(t.Context(), "new", create(t, s, "new").Place, driver.Changed)
	c.Exec(t, "DELETE FROM dlock_node WHERE queue = 'old'")
	for i := range 250 {
		c.Exec(t, "INSERT INTO dlock_queue (name, last, used) VALUES (?, 1, 1)", i)
	}
	c.Exec(t, callText(c.database, "dlock_begin", []any{"A7", int64(0), int64(0), true, int64(0)}))
	c.Exec(t, "DELETE FROM dlock_lease WHERE session = 'A7'")
	for more := true; more; {
		var err error
		if more, err = s.Requests.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	assert.Equal(t, "held,new", c.server.SQL(t, c.database, "SELECT GROUP_CONCAT(name ORDER BY name) FROM dlock_queue"))
	assert.Equal(t, s.ID(), c.server.SQL(t, c.database, "SELECT GROUP_CONCAT(id) FROM dlock_session"))
}

func TestNoRequestSeesWhatIsNotCommitted(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	first := newSession(t, c)
	held := create(t, first, "q")
	connector, err := NewConnector(openDB(t, c.server, c.database, "tx_isolation=%27READ-UNCOMMITTED%27"), Options{EmptyIsNew: true})
	require.NoError(t, err)
	second, err := connector.Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { second.Close() }) // runs after the rollback of the transaction below
	remover := begun(t, c)
	_, err = remover.Exec("DELETE FROM dlock_node WHERE queue = 'q' AND name = ?", held.Name)
	require.NoError(t, err)
	if j := create(t, second, "q"); !j.Known || len(j.Ahead) != 1 {
		t.Errorf("the append sees %v ahead", j.Ahead)
	}
	if nodes, err := second.List(t.Context(), "q"); err != nil || len(nodes) != 2 {
		t.Errorf("nodes %v, error %v", nodes, err)
	}
	now, err := second.(*session.Session).Store().Look(t.Context(), []session.Query{{Queue: "q", Own: "a-W-0000000002", Await: held.Name}})
	require.NoError(t, err)
	assert.Len(t, now[0].Nodes, 2)
}

// dlock_await must release its named locks, and show the queue even without
// them.
func TestAnAwaitShowsTheQueueAndKeepsNoLock(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	c.Admin.SetMaxOpenConns(1) // GET_LOCK and RELEASE_LOCK need the same connection
	s := newSession(t, c)
	first, second := create(t, s, "q"), create(t, s, "q")
	do := func(function string, of driver.Joined) (result int) {
		text := fmt.Sprintf("SELECT %s(CONCAT('dlock/', MD5(CONCAT(DATABASE(), '/q/', '%s')))%s)", function, of.Name,
			map[string]string{"GET_LOCK": ", 0"}[function])
		require.NoError(t, c.Admin.QueryRow(text).Scan(&result))
		return result
	}
	await := func() (int, error) {
		now, err := s.Store().Look(t.Context(), []session.Query{{Queue: "q", Own: second.Name, Await: first.Name}})
		if err != nil {
			return 0, err
		}
		return len(now[0].Nodes), nil
	}
	awaits := func(nodes int) {
		t.Helper()
		n, err := await()
		require.NoError(t, err)
		assert.Equal(t, nodes, n)
		assert.Equal(t, 1, do("IS_FREE_LOCK", second))
	}
	do("GET_LOCK", first)
	awaits(2)
	do("RELEASE_LOCK", first)
	awaits(2)
	require.NoError(t, s.Delete(t.Context(), "q", first.Place, driver.Released))
	awaits(1)
	c.Exec(t, "RENAME TABLE dlock_node TO other")
	_, err := await()
	require.ErrorContains(t, err, "dlock_node")
	assert.Equal(t, 1, do("IS_FREE_LOCK", second))
	c.Exec(t, "RENAME TABLE other TO dlock_node")
	c.Exec(t, "DELETE FROM dlock_session")
	_, err = await()
	assert.ErrorIs(t, err, driver.ErrSessionEnded)
}

// In the deadlock, the server rolls back the append, which has changed fewer
// rows.
func TestDeadlockIsRepeated(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	s.Delete(t.Context(), "q", create(t, s, "q").Place, driver.Changed)
	c.Exec(t, "CREATE TABLE work (n int) ENGINE=InnoDB")
	deadlocks := func() string {
		return c.server.SQL(t, "", "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_deadlocks'")
	}
	before := deadlocks()
	other := begun(t, c)
	_, err := other.Exec("INSERT INTO work SELECT seq FROM seq_1_to_1000")
	require.NoError(t, err)
	lockRows(t, other, "SELECT * FROM dlock_queue WHERE name = 'q' FOR UPDATE")
	created := make(chan error, 1)
	go func() {
		_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
		created <- err
	}()
	eventually(t, "the append does not wait", func() bool {
		return waits(t, c.server) == "1"
	})
	lockRows(t, other, "SELECT * FROM dlock_session FOR UPDATE")
	if deadlocks() == before {
		t.Error("there was no deadlock")
	}
	assert.NoError(t, other.Commit())
	assert.NoError(t, <-created)
	if nodes, err := s.List(t.Context(), "q"); err != nil || len(nodes) != 1 {
		t.Errorf("nodes %v, error %v", nodes, err)
	}
}

// After many conflicts, the store gives up with a temporary error.
func TestConflictsThatDoNotEnd(t *testing.T) {
	s := newCounted(t, mysqltest.Shared(t))
	s.server.SQL(t, s.database, "DROP PROCEDURE dlock_append; "+
		"CREATE PROCEDURE dlock_append(a TEXT, b BIGINT, c TEXT, d TEXT, e TEXT) SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213")
	before := s.roundTrips()
	_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	if tries := s.roundTrips() - before; !errors.Is(err, driver.ErrUnavailable) || tries != maxTries {
		t.Errorf("%d tries, error %v", tries, err)
	}
}

// The append was sent, so database/sql must not repeat it.
func TestLostReplyDoesNotRepeatTheAppend(t *testing.T) {
	s := newCounted(t, mysqltest.Shared(t))
	create(t, s, "other") // opens a connection
	s.proxy.CutOneWay(testenv.ToClient)
	failed := make(chan error, 1)
	go func() {
		_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("y")})
		failed <- err
	}()
	eventually(t, "the append does not arrive", func() bool {
		return s.server.SQL(t, s.database, "SELECT COUNT(*) FROM dlock_queue WHERE name = 'q'") == "1"
	})
	last := func() string { return s.server.SQL(t, s.database, "SELECT last FROM dlock_queue WHERE name = 'q'") }
	first := last()
	s.proxy.DropConnections()
	s.proxy.Heal()
	assert.ErrorIs(t, <-failed, driver.ErrUnavailable)
	eventually(t, "the node is still there", func() bool {
		return s.server.SQL(t, s.database, "SELECT COUNT(*) FROM dlock_node WHERE queue = 'q'") == "0"
	})
	assert.Equal(t, first, last(), "the append was repeated")
}

func TestServerWithoutFreeConnections(t *testing.T) {
	server := mysqltest.Start(t, mysqltest.WithConfig("max_connections=10"))
	database := server.Database()
	server.SQL(t, database, "CREATE USER plain@'%' IDENTIFIED BY 'correct-horse'; GRANT ALL ON "+database+".* TO plain@'%';"+
		"CREATE USER few@'%' IDENTIFIED BY 'correct-horse' WITH MAX_USER_CONNECTIONS 1; GRANT ALL ON "+database+".* TO few@'%'")
	as := func(user string) string {
		return strings.Replace(server.DSN(database, "session_timeout=10s"), "dlock:", user+":", 1)
	}
	fill := func(user string) (empty func()) {
		db, err := sql.Open("mysql", strings.Replace(server.DSN(database), "dlock:", user+":", 1))
		require.NoError(t, err)
		var taken []*sql.Conn
		for range 20 {
			c, err := db.Conn(t.Context())
			if err != nil {
				break
			}
			taken = append(taken, c)
		}
		return func() {
			for _, c := range taken {
				c.Close()
			}
			db.Close()
		}
	}
	empty := fill("plain")
	unavailable(t, as("plain"), "Too many connections")
	empty()
	eventually(t, "no connection is free", func() bool {
		_, err := testenv.Connect(t, Driver{}, as("plain"))
		return err == nil
	})
	empty = fill("few")
	unavailable(t, as("few"), "max_user_connections")
	empty()
}

func TestStatementsOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/stores/mysql.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Look and free by hand\n")
	blocks := strings.Split(section, "```")
	statements := strings.TrimPrefix(blocks[1], "sql") + strings.TrimPrefix(blocks[3], "sql")
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	j := create(t, s, "stock/42")
	run := strings.NewReplacer("web1-W-1795490049510490", j.Name, "LC57SFPW4BYQSEGLO2YE2ZCWOX", s.ID()).Replace(statements)
	out := c.server.SQL(t, c.database, run)
	lines := strings.Split(out, "\n")
	if len(lines) != 3 || lines[0] != fmt.Sprintf("%s\t%s\t%d", j.Name, s.ID(), j.Token) ||
		!strings.HasPrefix(lines[1], s.ID()+"\t3") || lines[2] != "ok" {
		t.Errorf("the statements\n%s\nprint\n%s", run, out)
	}
	assert.Equal(t, "0", c.server.SQL(t, c.database, "SELECT (SELECT COUNT(*) FROM dlock_node) + (SELECT COUNT(*) FROM dlock_session) + (SELECT COUNT(*) FROM dlock_lease)"))
}

func TestConnectionsAtRest(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	sqltest.ConnectionsAtRest(t, func() *dlock.Client {
		client, err := dlock.Open("mysql", server.DSN(database, "session_timeout=4s"))
		require.NoError(t, err)
		t.Cleanup(func() { client.Close() })
		return client
	}, func() int {
		n, err := strconv.Atoi(server.SQL(t, "", "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '"+database+"'"))
		require.NoError(t, err)
		return n
	})
}

func TestASessionSurvivesARotation(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := mysqltest.Start(t, mysqltest.WithTLS(certs.Server))
	server.SQL(t, "", "CREATE USER shop IDENTIFIED BY 'one'; GRANT ALL ON *.* TO shop")
	testenv.Rotation{
		Driver: func(f func(context.Context) (string, error)) driver.Driver { return Driver{Password: f} },
		DSN: func(password string, c *testenv.Certs) string {
			return fmt.Sprintf("shop@tcp(%s)/%s?%ssession_timeout=1h&empty_is_new=true&tls=true&tls_ca=%s",
				server.Addr(), server.Database(), password, url.QueryEscape(c.CA))
		},
		Certs:        certs,
		Password:     func(text string) { server.SQL(t, "", "ALTER USER shop IDENTIFIED BY '"+text+"'; KILL USER shop") },
		Certificates: func() { server.SQL(t, "", "FLUSH SSL; KILL USER shop") },
		Refused:      "Access denied",
	}.Run(t)
}
