package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// refused checks that Connect fails permanently, with an error that contains
// each text and no password.
func refused(t *testing.T, dsn string, texts ...string) error {
	t.Helper()
	return sqltest.Refused(t, Driver{}, dsn, sqltest.Refusal{Texts: texts, Secrets: secrets})
}

// unavailable checks that Connect fails with a temporary error that contains
// each text and no password.
func unavailable(t *testing.T, dsn string, texts ...string) error {
	t.Helper()
	return sqltest.Refused(t, Driver{}, dsn, sqltest.Refusal{Unavailable: true, Texts: texts, Secrets: secrets})
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	t.Run("password", func(t *testing.T) {
		refused(t, strings.Replace(server.DSN(database, "session_timeout=10s"), server.Password(), secret, 1), "Access denied for user 'dlock'")
	})
	t.Run("database", func(t *testing.T) {
		refused(t, server.DSN("missing"), "Unknown database 'missing'")
	})
	t.Run("no TLS", func(t *testing.T) {
		refused(t, server.DSN(database, "tls=true"), "server does not support TLS")
	})
	t.Run("no server", func(t *testing.T) {
		port, err := testenv.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		unavailable(t, server.DSNAt(testenv.Loopback(port), database), "connection refused")
	})
	t.Run("version", func(t *testing.T) {
		server.SQL(t, "", Statements(database)+"UPDATE dlock_meta SET version = 7")
		refused(t, server.DSN(database, "session_timeout=10s"), "version 7", fmt.Sprint("needs version ", schemaVersion), "drop the tables")
	})
	t.Run("column", func(t *testing.T) {
		database := server.Database()
		server.SQL(t, "", Statements(database)+"ALTER TABLE dlock_session DROP COLUMN generation")
		refused(t, server.DSN(database, "session_timeout=10s"), "Unknown column 'generation'")
	})
}

func TestServerWithAnotherCertificateIsRefused(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := mysqltest.Start(t, mysqltest.WithTLS(certs.Server))
	database := server.Database()
	dsn := func(ca, name string) string {
		return server.DSN(database, "session_timeout=10s", "tls=true", "tls_server_name="+name, "tls_ca="+url.QueryEscape(ca))
	}
	if _, err := sqltest.Connect(t, Driver{}, dsn(certs.CA, "localhost")); err != nil {
		t.Error(err)
	}
	refused(t, dsn(certs.OtherCA, "localhost"), "certificate")
	refused(t, dsn(certs.CA, "other.example"), "certificate")
	refused(t, server.DSN(database, "tls=true"), "certificate")
}

func TestSettingsOfTheServer(t *testing.T) {
	server := mysqltest.Start(t, mysqltest.WithConfig("log_bin=binlog"))
	database := server.Database()
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	logged := func(want ...string) {
		t.Helper()
		log.Reset()
		if _, err := sqltest.Connect(t, Driver{}, server.DSN(database, "session_timeout=10s")); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "\n"); got != len(want) {
			t.Errorf("%d lines, want %d:\n%s", got, len(want), &log)
		}
		for _, text := range want {
			if !strings.Contains(log.String(), text) || !strings.Contains(log.String(), server.Addr()) {
				t.Errorf("the log does not contain %q and the address:\n%s", text, &log)
			}
		}
	}
	logged()
	server.SQL(t, "", "SET GLOBAL binlog_format = 'STATEMENT'")
	refused(t, server.DSN(database, "session_timeout=10s"), "binlog_format STATEMENT")
	server.SQL(t, "", "SET GLOBAL binlog_format = 'ROW', GLOBAL read_only = 1")
	unavailable(t, server.DSN(database, "session_timeout=10s"), "read_only ON")
	server.SQL(t, "", "SET GLOBAL sql_select_limit = 0")
	unavailable(t, server.DSN(database, "session_timeout=10s"), "read_only ON")
	server.SQL(t, "", "SET GLOBAL read_only = 0")
	logged()
}

func TestWeaknesses(t *testing.T) {
	for want, settings := range map[string]map[string]string{
		"the same member": {"wsrep_on": "ON"},
	} {
		if got := weaknesses(settings); len(got) != 1 || !strings.Contains(got[0].Text, want) {
			t.Errorf("%v: %q", settings, got)
		}
	}
	for want, settings := range map[string]map[string]string{
		"MySQL 8.0.28, and the driver needs 8.0.29":   {"version": "8.0.28"},
		"MariaDB 10.5.9, and the driver needs 10.6.0": {"version": "10.5.9-MARIADB"},
		"super_read_only 1":                           {"version": "8.4.0", "super_read_only": "1"},
		"several primaries have":                      {"version": "8.4.0", "group_replication_single_primary_mode": "OFF"},
	} {
		if err := unusable(settings); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", settings, err)
		}
		for name := range settings {
			if !strings.Contains(variables, "'"+name+"'") {
				t.Errorf("the driver does not ask for %s", name)
			}
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
	s, err := sqltest.Connect(t, Driver{}, dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")}); err != nil {
		t.Error(err)
	}
}

func TestManyProcessesMayCreateTheTables(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if _, err := sqltest.Connect(t, Driver{}, server.DSN(database, "session_timeout=10s")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	server.SQL(t, "", Statements(database)) // while sessions live
}

func openDB(t *testing.T, server *mysqltest.Server, database string, params ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", server.DSN(database, params...))
	if err != nil {
		t.Fatal(err)
	}
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
		next := make(chan *dlock.Lock)
		go func() { next <- lock(t, locks[(i+1)%2]) }()
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
			if err != nil {
				t.Fatal(err)
			}
			handOver(t, c)
			if err := db.Ping(); err != nil {
				t.Errorf("Close of the clients must leave the database open: %v", err)
			}
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
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
			t.Errorf("a database of two connections: %v", err)
		}
	})
	t.Run("no free connection", func(t *testing.T) {
		db := openDB(t, server, server.Database())
		c, err := NewConnector(db, Options{SessionTimeout: time.Hour, EmptyIsNew: true})
		if err != nil {
			t.Fatal(err)
		}
		sqltest.AllConnectionsInUse(t, db, c)
	})
	t.Run("Options.Database", func(t *testing.T) {
		db := openDB(t, server, "")
		c, err := NewConnector(db, Options{EmptyIsNew: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "set Options.Database") {
			t.Errorf("connections without a database: %v", err)
		}
		if c, err = NewConnector(db, Options{Database: server.Database(), EmptyIsNew: true}); err != nil {
			t.Fatal(err)
		}
		handOver(t, c)
	})
}

// Proxies may pool connections.
func TestEachStatementOnAnotherConnection(t *testing.T) {
	server := mysqltest.Shared(t)
	db := openDB(t, server, server.Database())
	db.SetMaxIdleConns(-1) // each statement opens a connection
	c, err := NewConnector(db, Options{SessionTimeout: 20 * time.Second, EmptyIsNew: true})
	if err != nil {
		t.Fatal(err)
	}
	handOver(t, c)
}

// If the program returns a connection with an open transaction to its pool, no
// statement of the driver may end that transaction.
func TestConnectionLeftInATransaction(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	db := openDB(t, server, database)
	c, err := NewConnector(db, Options{SessionTimeout: time.Hour, EmptyIsNew: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	server.SQL(t, database, "CREATE TABLE work (n int) ENGINE=InnoDB")
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"START TRANSACTION", "INSERT INTO work VALUES (1)", callText(database, "dlock_append", []any{"s", int64(1), "q", "a-W-", "d"})} {
		_, err = conn.ExecContext(t.Context(), text)
	}
	if err = markError(t.Context(), err); number(err) != 1568 || !isRefused(err) {
		t.Errorf("error %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Error(err)
	}
	conn.Close()
	if n := server.SQL(t, database, "SELECT COUNT(*) FROM work"); n != "1" {
		t.Errorf("the transaction of the program has %s rows", n)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	db := new(sql.DB)
	for want, o := range map[string]Options{
		"Options.Database":       {Database: strings.Repeat("d", 300)},
		"Options.SessionTimeout": {SessionTimeout: time.Millisecond},
		"Options.Grace":          {Grace: 5 * time.Second},
	} {
		if _, err := NewConnector(db, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := NewConnector(nil, Options{}); err == nil {
		t.Error("no error for a nil database")
	}
}

func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	sqltest.KilledUnderLoad(t, server, "mysql", server.DSN(server.Database(), "session_timeout=3s"))
	sqltest.SaysWhyItEnded(t, server, "mysql", server.DSN(server.Database(), "session_timeout=3s"))
}

func newSession(t *testing.T, c driver.Connector) *caseSession {
	t.Helper()
	s, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*caseSession)
}

func create(t *testing.T, s driver.Session, queue string) driver.Joined {
	t.Helper()
	j, err := s.Create(t.Context(), queue, driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func lockRows(t *testing.T, tx *sql.Tx, text string, args ...any) {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), text, args...)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
}

// waits returns how many transactions wait for row locks. It does not read the
// table innodb_trx, because MySQL refreshes that at most ten times a second.
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

// An operator might set an extreme deadline by hand, to end a session or to
// keep it alive.
func TestDeadlineOfAnotherSessionByHand(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	for deadline, passed := range map[int64]bool{math.MinInt64: true, -2: true, math.MaxInt64: false} {
		c.exec(t, callText(c.database, "dlock_begin", []any{"A7", int64(0), int64(0), true, int64(0)}))
		c.exec(t, fmt.Sprint("UPDATE dlock_lease SET deadline = ", deadline, " WHERE session = 'A7'"))
		if next, err := s.Store().Beat(t.Context()); err != nil || next <= 0 != passed {
			t.Errorf("%d: a heartbeat says that a deadline comes in %v, error %v", deadline, next, err)
		}
		if ended, err := s.requests.Expire(t.Context()); err != nil || ended != passed {
			t.Errorf("%d: the session is ended: %v, error %v", deadline, ended, err)
		}
		c.exec(t, callText(c.database, "dlock_end", []any{"A7"}))
	}
}

// A Create that reaches the server after the session has cancelled it must be
// refused.
func TestLateChangeIsRefused(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	c.exec(t, callText(c.database, "dlock_cancel", []any{s.ID(), int64(2), "1"}))
	c.exec(t, callText(c.database, "dlock_append", []any{s.ID(), int64(1), "q", "late-W-", "2"}))
	nodes, err := s.List(t.Context(), "q")
	if err != nil || len(nodes) > 0 {
		t.Errorf("nodes %v, error %v", nodes, err)
	}
}

// Cancel must wait for an append that is still running in the server. The test
// blocks the append by locking the row of its queue.
func TestCancelWaitsForAppendsThatRun(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	c.exec(t, "INSERT INTO dlock_queue (name, last, used) VALUES ('q', 1, 1)")
	blocker, err := c.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Rollback()
	lockRows(t, blocker, "SELECT * FROM dlock_queue WHERE name = 'q' FOR UPDATE")
	var all sync.WaitGroup
	all.Go(func() {
		c.exec(t, callText(c.database, "dlock_append", []any{s.ID(), int64(1), "q", "late-W-", "2"}))
	})
	eventually(t, "the append does not wait", func() bool { return waits(t, c.server) == "1" })
	done := make(chan struct{})
	all.Go(func() {
		c.exec(t, callText(c.database, "dlock_cancel", []any{s.ID(), int64(2), "2"}))
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
	if err := blocker.Rollback(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if nodes, err := s.List(t.Context(), "q"); err != nil || len(nodes) > 0 {
		t.Errorf("nodes %v, error %v", nodes, err)
	}
}

// The test keeps the rename's transaction open, so the removal must wait for
// the commit and then find the node.
func TestRemovalFindsANodeThatIsBeingRenamed(t *testing.T) {
	for _, why := range []driver.Cause{driver.Changed, driver.Released} {
		t.Run(why.String(), func(t *testing.T) {
			c := newCaseWith(t, "session_timeout=1h")
			s := newSession(t, c)
			j := create(t, s, "q")
			replacement, err := c.admin.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer replacement.Rollback()
			for _, text := range []string{"UPDATE dlock_queue SET last = last + 1 WHERE name = 'q'",
				"UPDATE dlock_node SET name = REPLACE(name, 'a-W-', 'a-R-') WHERE queue = 'q'"} {
				if _, err := replacement.Exec(text); err != nil {
					t.Fatal(err)
				}
			}
			removed := make(chan error, 1)
			go func() { removed <- s.Delete(t.Context(), "q", j.Place, why) }()
			eventually(t, "the removal does not wait", func() bool { return waits(t, c.server) == "1" })
			if err := replacement.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-removed; err != nil {
				t.Error(err)
			}
			if nodes, err := s.List(t.Context(), "q"); err != nil || len(nodes) > 0 {
				t.Errorf("nodes %v, error %v", nodes, err)
			}
		})
	}
}

// A heartbeat must succeed although a blocked change holds the row lock of the
// session.
func TestHeartbeatDoesNotWaitForChanges(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	blocker, err := c.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Rollback()
	lockRows(t, blocker, "SELECT * FROM dlock_session WHERE id = ? FOR UPDATE", s.ID())
	if _, err := s.Store().Beat(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestChangeByHandIsNoticed(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	w, err := s.Watch(t.Context(), "q", create(t, s, "q").Place)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	c.exec(t, "DELETE FROM dlock_node")
	select {
	case <-w.C:
	case <-time.After(10 * time.Second):
		t.Error("the watch goes on")
	}
}

// One connection sets the variable timestamp, so that the server's clock seems
// to be in the year 2001 on that connection.
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
	c.exec(t, "DELETE FROM dlock_node")
	c.exec(t, "CALL dlock_tidy()")
	if n := c.server.SQL(t, c.database, "SELECT COUNT(*) FROM dlock_queue"); n != "1" {
		t.Errorf("%s queues are left of one that was used today", n)
	}
	appendOld()
	c.exec(t, "UPDATE dlock_queue SET used = used - 3")
	c.exec(t, "CALL dlock_tidy()")
	if n := c.server.SQL(t, c.database, "SELECT COUNT(*) FROM dlock_queue"); n != "1" {
		t.Errorf("%s queues are left of one with a node", n)
	}
	c.exec(t, "DELETE FROM dlock_node")
	c.exec(t, "CALL dlock_tidy()")
	if n := c.server.SQL(t, c.database, "SELECT COUNT(*) FROM dlock_queue"); n != "0" {
		t.Errorf("%s queues are left", n)
	}
	appendOld()
}

// The test creates more old queues than one call of Tidy removes.
func TestRowsOfOldQueuesAreRemoved(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	create(t, s, "held")
	create(t, s, "old")
	c.exec(t, "UPDATE dlock_queue SET used = used - 3")
	s.Delete(t.Context(), "new", create(t, s, "new").Place, driver.Changed)
	c.exec(t, "DELETE FROM dlock_node WHERE queue = 'old'")
	for i := range 250 {
		c.exec(t, "INSERT INTO dlock_queue (name, last, used) VALUES (?, 1, 1)", i)
	}
	for more := true; more; {
		var err error
		if more, err = s.requests.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if names := c.server.SQL(t, c.database, "SELECT GROUP_CONCAT(name ORDER BY name) FROM dlock_queue"); names != "held,new" {
		t.Errorf("these queues have rows: %s", names)
	}
}

// If the server's clock is set forward, a session learns with its next
// heartbeat that it has ended, as documented.
func TestClockSetForwardEndsSessions(t *testing.T) {
	c := newCaseWith(t, "session_timeout=8s")
	s := newSession(t, c)
	create(t, s, "q")
	late := openDB(t, c.server, c.database, fmt.Sprint("timestamp=", time.Now().Add(time.Hour).Unix()))
	var status string
	if err := late.QueryRow("CALL dlock_expire()").Scan(&status); err != nil || status != "ok" {
		t.Fatal(status, err)
	}
	select {
	case <-s.Done():
		if !errors.Is(s.Err(), sqlstore.ErrUnknownSession) {
			t.Error(s.Err())
		}
	case <-time.After(10 * time.Second):
		t.Error("the session lives on")
	}
}

// Sessions must not see uncommitted changes even if their connections are set
// to READ UNCOMMITTED.
func TestNoRequestSeesWhatIsNotCommitted(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	first := newSession(t, c)
	held := create(t, first, "q")
	connector, err := NewConnector(openDB(t, c.server, c.database, "tx_isolation=%27READ-UNCOMMITTED%27"), Options{EmptyIsNew: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := connector.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	remover, err := c.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer remover.Rollback()
	if _, err := remover.Exec("DELETE FROM dlock_node WHERE queue = 'q' AND name = ?", held.Name); err != nil {
		t.Fatal(err)
	}
	if j := create(t, second, "q"); !j.Known || len(j.Ahead) != 1 {
		t.Errorf("the append sees %v ahead", j.Ahead)
	}
	if nodes, err := second.List(t.Context(), "q"); err != nil || len(nodes) != 2 {
		t.Errorf("nodes %v, error %v", nodes, err)
	}
}

// On a deadlock, the server rolls back the transaction that has changed fewer
// rows. Here that is the append, which must then run again.
func TestDeadlockIsRepeated(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	s.Delete(t.Context(), "q", create(t, s, "q").Place, driver.Changed)
	c.exec(t, "CREATE TABLE work (n int) ENGINE=InnoDB")
	deadlocks := func() string {
		return c.server.SQL(t, "", "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_deadlocks'")
	}
	before := deadlocks()
	other, err := c.admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := other.Exec("INSERT INTO work SELECT seq FROM seq_1_to_1000"); err != nil {
		t.Fatal(err)
	}
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
	if err := other.Commit(); err != nil {
		t.Error(err)
	}
	if err := <-created; err != nil {
		t.Error(err)
	}
	if nodes, err := s.List(t.Context(), "q"); err != nil || len(nodes) != 1 {
		t.Errorf("nodes %v, error %v", nodes, err)
	}
}

// After many conflicts with other transactions, the store gives up with a
// temporary error.
func TestConflictsThatDoNotEnd(t *testing.T) {
	c := newCounted(t, mysqltest.Shared(t))
	session, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	s := c.sessions[0]
	c.server.SQL(t, c.database, "DROP PROCEDURE dlock_append; "+
		"CREATE PROCEDURE dlock_append(a TEXT, b BIGINT, c TEXT, d TEXT, e TEXT) SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213")
	before := s.roundTrips()
	_, err = s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	if tries := s.roundTrips() - before; !errors.Is(err, driver.ErrUnavailable) || tries != maxTries {
		t.Errorf("%d tries, error %v", tries, err)
	}
}

// An operator may interrupt the append after its commit. The session must then
// remove the new node.
func TestAppendThatWasInterruptedLeavesNothing(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	s.requests.Intercept(func(ctx context.Context, method string, send func(context.Context) error) error {
		err := send(ctx)
		if method == "Create" {
			err = markError(ctx, &mysql.MySQLError{Number: 1317, Message: "Query execution was interrupted"})
		}
		return err
	})
	_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	eventually(t, "the node is still there", func() bool {
		nodes, err := s.List(t.Context(), "q")
		return err == nil && len(nodes) == 0
	})
}

// database/sql sends a statement again if the client claims that it was not
// sent. Here the append was sent and only the reply is lost, so the append must
// not be sent again.
func TestLostReplyDoesNotRepeatTheAppend(t *testing.T) {
	c := newCounted(t, mysqltest.Shared(t))
	session, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	s := c.sessions[0]
	if j := create(t, s, "other"); j.Token == 0 {
		t.Fatal("no token")
	}
	before := s.roundTrips()
	s.proxy.CutOneWay(testenv.ToClient)
	failed := make(chan error, 1)
	go func() {
		_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("y")})
		failed <- err
	}()
	eventually(t, "the append does not arrive", func() bool {
		return c.server.SQL(t, c.database, "SELECT COUNT(*) FROM dlock_queue WHERE name = 'q'") == "1"
	})
	s.proxy.DropConnections()
	s.proxy.Heal()
	if err := <-failed; !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	eventually(t, "the node is still there", func() bool {
		return c.server.SQL(t, c.database, "SELECT COUNT(*) FROM dlock_node WHERE queue = 'q'") == "0"
	})
	if n := s.roundTrips() - before; n != 3 {
		t.Errorf("%d queries, want 3: the append, the setting of a new connection, and the cancellation", n)
	}
}

func TestSmallPoolServesManyCalls(t *testing.T) {
	server := mysqltest.Shared(t)
	client, err := dlock.Open("mysql", server.DSN(server.Database(), "session_timeout=8s", "max_connections=3"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var tokens sync.Map
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			name := fmt.Sprint("q", i%3)
			l := lock(t, client.RWMutex(name))
			if _, twice := tokens.LoadOrStore(fmt.Sprint(name, l.Token()), true); twice {
				t.Errorf("token %d came twice", l.Token())
			}
			sqltest.Unlock(t, l)
		})
	}
	all.Wait()
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
		if err != nil {
			t.Fatal(err)
		}
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
		_, err := sqltest.Connect(t, Driver{}, as("plain"))
		return err == nil
	})
	empty = fill("few")
	unavailable(t, as("few"), "max_user_connections")
	empty()
}

func TestStatementsOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operate/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### MySQL and MariaDB\n")
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
	if n := c.server.SQL(t, c.database, "SELECT (SELECT COUNT(*) FROM dlock_node) + (SELECT COUNT(*) FROM dlock_session) + (SELECT COUNT(*) FROM dlock_lease)"); n != "0" {
		t.Errorf("%s rows are left", n)
	}
}

func TestConnectionsAtRest(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	sqltest.ConnectionsAtRest(t, func() *dlock.Client {
		client, err := dlock.Open("mysql", server.DSN(database, "session_timeout=4s"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}, func() int {
		n, err := strconv.Atoi(server.SQL(t, "", "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '"+database+"'"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
}
