package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Both functions check the error of Connect, which must contain no password.
var refused, unavailable = sqltest.Refusals(Driver{}, secrets...)

func TestConnectSaysWhatIsWrong(t *testing.T) {
	server := pgtest.Shared(t)
	schema, other := server.Schema(), server.Schema()
	refused(t, strings.Replace(server.DSN(), server.Password(), secret, 1), "password authentication failed")
	err := refused(t, strings.NewReplacer(server.Password(), secret, "sslmode=disable", "sslmode=prefer").Replace(server.DSN()), "password authentication failed")
	require.NotContains(t, err.Error(), "tls error")
	refused(t, strings.Replace(server.DSN(), "/postgres?", "/missing?", 1), `database "missing" does not exist`)
	refused(t, strings.Replace(server.DSN(), "sslmode=disable", "sslmode=require", 1), "refused TLS")
	port, err := testenv.FreePort()
	require.NoError(t, err)
	unavailable(t, server.DSNAt(testenv.Loopback(port)), "connection refused")
	refused(t, server.DSN("schema="+schema, "options=-c%20default_transaction_isolation%3Dserializable"),
		"needs the isolation level read committed")
	server.SQL(t, Statements(schema)+fmt.Sprintf("UPDATE %s.meta SET version = 7", schema))
	refused(t, server.DSN("schema="+schema), "the tables and routines in ", " have layout 7", fmt.Sprint("needs layout ", schemaVersion), "delete these")
	server.SQL(t, Statements(other)+fmt.Sprintf("ALTER TABLE %s.session DROP COLUMN deadline", other))
	refused(t, server.DSN("schema="+other), `column "deadline" of relation "session" does not exist`)
	simple := role(t, server, server.Schema(), []string{"standard_conforming_strings = off"}, "default_query_exec_mode=simple_protocol")
	testenv.Session(t, Driver{}, simple)
	config, err := pgx.ParseConfig(strings.Split(simple, "?")[0] + "?sslmode=disable&default_query_exec_mode=simple_protocol")
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	defer db.Close()
	c, err := NewConnector(db, Options{EmptyIsNew: true, Schema: server.Schema()})
	require.NoError(t, err)
	_, err = c.Connect(t.Context())
	require.ErrorContains(t, err, "standard_conforming_strings")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

// The test simulates Amazon Aurora, which by default hides the current LSN.
func TestServerThatHidesItsTimelineIsRefused(t *testing.T) {
	server := pgtest.Start(t, pgtest.WithConfig("allow_system_table_mods=on"))
	server.SQL(t, "ALTER FUNCTION pg_catalog.pg_current_wal_lsn() RENAME TO hidden; "+
		"CREATE FUNCTION pg_catalog.pg_current_wal_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS "+
		"$$BEGIN RAISE 'wal_level must be set to logical' USING ERRCODE = '55000'; END$$")
	refused(t, server.DSN("session_timeout=10s"), "timeline of the server: wal_level")
	checked(t, server.DSN("session_timeout=10s")).Has(t, driver.Problem, "timeline", "rds.logical_replication")
}

func TestASchemaMayHaveTheNameOfAKeyword(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	for _, schema := range []string{"order", "user", "all"} {
		client := opened(t, server.DSN("session_timeout=10s", "schema="+schema))
		held := mustLock(t, client)
		ctx, cancel := context.WithCancel(t.Context())
		next := make(chan error, 1)
		go func() {
			_, err := opened(t, server.DSN("session_timeout=10s", "schema="+schema)).RWMutex("q").Lock(ctx)
			next <- err
		}()
		eventually(t, func() bool { n, err := client.RWMutex("q").Queue(ctx); return err == nil && len(n) == 2 })
		require.NoError(t, held.Unlock())
		require.NoError(t, <-next)
		cancel()
		checked(t, server.DSN("session_timeout=10s", "schema="+schema)).Has(t, driver.OK, "room for", "")
	}
}

func TestUserWithoutDDLRightsGetsTheStatements(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	user := "plain_" + schema
	server.SQL(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'correct-horse'; REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
	dsn := strings.Replace(server.DSN("schema="+schema), "dlock:", user+":", 1)
	err := refused(t, dsn, `CREATE SCHEMA IF NOT EXISTS "`+schema+`"`, `GRANT USAGE ON SCHEMA "`+schema+`" TO "`+user+`"`)
	_, statements, _ := strings.Cut(err.Error(), "Let an operator run:\n")
	server.SQL(t, statements)
	s := testenv.Session(t, Driver{}, dsn)
	_, err = s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	assert.NoError(t, err)
}

// Every user may call functions by default, so the test revokes that right.
func TestUserWithoutRightsOnTheTablesGetsTheGrants(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	user := "reader_" + schema
	server.SQL(t, Statements(schema)+"; CREATE ROLE "+user+" LOGIN PASSWORD 'correct-horse'")
	server.SQL(t, "REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA "+schema+" FROM PUBLIC")
	dsn := strings.Replace(server.DSN("schema="+schema), "dlock:", user+":", 1)
	err := refused(t, dsn, "permission denied for schema "+schema, `GRANT USAGE ON SCHEMA "`+schema+`" TO "`+user+`"`)
	_, statements, _ := strings.Cut(err.Error(), "Let an operator run:\n")
	server.SQL(t, statements)
	testenv.Session(t, Driver{}, dsn)
}

func TestManyProcessesMayCreateTheTables(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			_, err := testenv.Connect(t, Driver{}, server.DSN("schema="+schema))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	server.SQL(t, Statements(schema)) // allowed while sessions exist
}

func TestExistingDatabase(t *testing.T) {
	server := pgtest.Shared(t)
	db := openDB(t, server)
	c, err := NewConnector(db, Options{EmptyIsNew: true, Schema: server.Schema(), SessionTimeout: 2 * time.Second})
	require.NoError(t, err)
	one, two := dlock.NewClient(c), dlock.NewClient(c)
	defer one.Close()
	defer two.Close()
	held := lock(t, one.RWMutex("q"))
	next := testenv.LockLater(t, two.RWMutex("q"))
	held.Unlock()
	l := <-next
	assert.Greater(t, l.Token(), held.Token())
	l.Unlock()
	assert.NoError(t, errors.Join(one.Close(), two.Close(), db.Ping()), "Close of the clients must leave the database open")

	db.SetMaxOpenConns(2)
	_, err = c.Connect(t.Context())
	assert.ErrorContains(t, err, "SetMaxOpenConns")
	sqltest.ClosedDatabase(t, db, c)
}

func TestExistingDatabaseWithoutAFreeConnection(t *testing.T) {
	server := pgtest.Shared(t)
	db := openDB(t, server)
	c, err := NewConnector(db, Options{EmptyIsNew: true, Schema: server.Schema(), SessionTimeout: time.Hour})
	require.NoError(t, err)
	sqltest.AllConnectionsInUse(t, db, c)
}

func TestBadOptionsAreRefused(t *testing.T) {
	db := new(sql.DB)
	for want, o := range map[string]Options{
		"Options.Schema":         {Schema: "a b"},
		"Options.SessionTimeout": {SessionTimeout: time.Millisecond},
	} {
		_, err := NewConnector(db, o)
		assert.ErrorContains(t, err, want)
	}
	_, err := NewConnector(nil, Options{})
	assert.Error(t, err, "no error for a nil database")
}

func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	dsn := server.DSN("session_timeout=3s")
	history.KilledUnderLoad(t, server, func() (*dlock.Client, error) { return dlock.Open("postgres", dsn) })
}

// Operators may set extreme deadlines, to end a session or to keep it alive.
func TestDeadlineOfAnotherSessionByHand(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	for deadline, passed := range map[string]bool{"-infinity": true, "4713-01-01 BC": true, "infinity": false, "294276-01-01": false} {
		c.Exec(t, "INSERT INTO dlock.session (id, timeout, deadline) VALUES ('A7', '1 hour', $1)", deadline)
		if next, err := s.Requests.Beat(t.Context()); err != nil || next <= 0 != passed {
			t.Errorf("%s: a heartbeat says that a deadline comes in %v, error %v", deadline, next, err)
		}
		if ended, err := s.Requests.Expire(t.Context()); err != nil || ended != passed {
			t.Errorf("%s: the session is ended: %v, error %v", deadline, ended, err)
		}
		c.Exec(t, "DELETE FROM dlock.session WHERE id = 'A7'")
	}
}

func TestChangeByHandIsNoticed(t *testing.T) {
	sqltest.ByHand(t, func(t *testing.T) (driver.Connector, func(string)) {
		c := newCaseWith(t, "session_timeout=1h")
		return c.connector(), func(text string) { c.Exec(t, text) }
	}, []string{"DELETE FROM dlock.session WHERE id = ID", "TRUNCATE dlock.session"},
		[]string{"DELETE FROM dlock.node", "TRUNCATE dlock.node"},
		[]string{"DROP TABLE dlock.session CASCADE", "DROP FUNCTION dlock.beat"})
}

// A proxy such as pgbouncer delivers no notices, so sessions must poll.
func TestTransactionPoolingProxy(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	addr := server.Pgbouncer(t, 4)
	dsn := server.DSNAt(addr, "schema="+server.Schema(), "session_timeout=20s", "default_query_exec_mode=exec")
	var locks []*dlock.RWMutex
	for range 2 {
		client, err := dlock.Open("postgres", dsn)
		require.NoError(t, err)
		defer client.Close()
		locks = append(locks, client.RWMutex("q"))
	}
	held := lock(t, locks[0])
	for i := range 6 {
		next := testenv.LockLater(t, locks[(i+1)%2])
		// Usually enough for the other session to start waiting.
		time.Sleep(20 * time.Millisecond)
		sqltest.Unlock(t, held)
		before := held.Token()
		if held = <-next; held.Token() <= before {
			t.Errorf("token %d after %d", held.Token(), before)
		}
	}
	assert.NoError(t, held.Unlock())
}

func TestServerWithoutFreeConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.WithConfig("max_connections=4", "superuser_reserved_connections=0", "max_wal_senders=0"))
	db := openDB(t, server)
	var taken []*sql.Conn
	for range 4 {
		c, err := db.Conn(t.Context())
		require.NoError(t, err)
		taken = append(taken, c)
	}
	unavailable(t, server.DSN(), "too many clients")
	for _, c := range taken {
		c.Close()
	}
	db.Close()
	client, err := dlock.Open("postgres", server.DSN())
	require.NoError(t, err)
	defer client.Close()
	lock(t, client.RWMutex("q")).Unlock()
}

// Without notices, the session must poll at once, not in a quarter of an hour.
func TestSessionThatNoLongerListensLooks(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	var locks []*dlock.RWMutex
	for _, name := range []string{"holder", "waiter"} {
		client, err := dlock.Open("postgres", server.DSN("schema="+schema, "session_timeout=1h", "application_name="+schema+name))
		require.NoError(t, err)
		defer client.Close()
		locks = append(locks, client.RWMutex("q"))
	}
	held := lock(t, locks[0])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	granted := make(chan error)
	go func() {
		_, err := locks[1].Lock(ctx)
		granted <- err
	}()
	listener := "SELECT pid FROM pg_stat_activity WHERE application_name = '" + schema + "waiter' AND query LIKE '%\"" + schema + "\".shown%'"
	pid := ""
	for end := time.Now().Add(time.Minute); pid == ""; pid = server.SQL(t, listener) { // wait until the connection that listens has polled
		if time.Now().After(end) {
			t.Fatal("the waiter does not listen")
		}
	}
	server.SQL(t, "SELECT pg_terminate_backend("+pid+", 60000)")
	assert.NoError(t, held.Unlock())
	assert.NoError(t, <-granted)
}

func TestConnectionsAtRest(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	schema := server.Schema()
	sqltest.ConnectionsAtRest(t, func() *dlock.Client {
		client, err := dlock.Open("postgres", server.DSN("schema="+schema, "session_timeout=4s", "application_name="+schema))
		require.NoError(t, err)
		t.Cleanup(func() { client.Close() })
		return client
	}, func() int {
		n, err := strconv.Atoi(server.SQL(t, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '"+schema+"'"))
		require.NoError(t, err)
		return n
	})
}

func TestASessionSurvivesARotation(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := pgtest.Start(t, pgtest.WithTLS(certs.Server))
	server.SQL(t, "CREATE ROLE shop SUPERUSER LOGIN PASSWORD 'one'")
	testenv.Rotation{
		Driver: func(f func(context.Context) (string, error)) driver.Driver { return Driver{Password: f} },
		DSN: func(password string, c *testenv.Certs) string {
			return fmt.Sprintf("postgres://shop@localhost:%d/postgres?%ssslmode=verify-full&sslrootcert=%s&session_timeout=1h&empty_is_new=true",
				server.Port(0), password, c.CA)
		},
		Certs: certs,
		Password: func(text string) {
			server.SQL(t, "ALTER ROLE shop PASSWORD '"+text+"'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'")
		},
		Certificates: func() {
			server.Copy(certs.Server.Cert)
			server.Copy(certs.Server.Key)
			server.Restart()
		},
		Refused: "password authentication failed",
	}.Run(t)
}
