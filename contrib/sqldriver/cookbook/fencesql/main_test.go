package main

import (
	"database/sql"
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/mysql"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/pgtest"
)

//go:embed schema.sql
var schema string

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func TestTheProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	a := account{setup: setup{db: database(t, "sqlite", "shop.db")}}
	main()
	a.has(t, 90)
}

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

func TestPostgreSQL(t *testing.T) {
	server := pgtest.Start(t)
	stories(t, setup{
		fence: postgres, driver: "postgres", dsn: server.DSN("schema=locks"),
		db: database(t, "pgx", server.DSN()), levels: levels,
	})
}

func TestMariaDB(t *testing.T) {
	server := mysqltest.Start(t)
	name := server.Database()
	stories(t, setup{
		fence: mysql, driver: "mysql", dsn: server.DSN(name),
		db: database(t, "mysql", server.DSN(name, "innodb_lock_wait_timeout=2")), levels: levels,
	})
}

func TestSQLite(t *testing.T) {
	dir := t.TempDir()
	stories(t, setup{
		fence: sqlite, driver: "sqlite", dsn: filepath.Join(dir, "locks.db"),
		db:     database(t, "sqlite", filepath.Join(dir, "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)"),
		levels: []sql.IsolationLevel{sql.LevelDefault},
	})
}

func database(t *testing.T, driver, dsn string) *sql.DB {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	for statement := range strings.SplitSeq(strings.TrimSpace(schema), ";\n") {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	return db
}

// setup is a database to test, with the lock that protects it.
type setup struct {
	fence
	driver, dsn string
	db          *sql.DB
	levels      []sql.IsolationLevel
}

// readers reports whether a transaction may write a row that another open
// transaction has read.
func (s setup) readers(level sql.IsolationLevel) bool {
	return s.driver == "postgres" || s.driver == "mysql" && level != sql.LevelSerializable
}

// stories checks what becomes of a paused holder's late writes, in several
// orders of events.
func stories(t *testing.T, s setup) {
	client, err := dlock.Open(s.driver, s.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	require.NoError(t, run(t.Context(), client, s.db, s.fence))
	s.reset(t)

	for _, level := range s.levels {
		a := account{setup: s, options: &sql.TxOptions{Isolation: level}}
		all := map[string]func(*testing.T, account){
			"late write":           lateWrite,
			"second equal write":   secondWrite,
			"new holder waits":     newHolderWaits,
			"rolled back":          rolledBack,
			"resource without row": withoutRow,
			"higher epoch":         higherEpoch,
		}
		if s.readers(level) {
			all["late after a read"] = lateAfterRead
			all["snapshot while waiting"] = snapshotWhileWaiting
		}
		for name, story := range all {
			t.Run(level.String()+"/"+name, func(t *testing.T) {
				s.reset(t)
				a.old, a.new = grant(t, client), grant(t, client)
				require.Less(t, a.old, a.new)
				story(t, a)
			})
		}
	}
}

func (s setup) reset(t *testing.T) {
	for _, statement := range []string{"UPDATE fence SET epoch = 0, token = 0", "UPDATE account SET balance = 100"} {
		_, err := s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

func grant(t *testing.T, client *dlock.Client) (token int64) {
	lock, err := client.RWMutex("account/7").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
	return lock.Token()
}

// account is the resource that the lock protects, with the tokens of an old and
// a new holder.
type account struct {
	setup
	options  *sql.TxOptions
	old, new int64
}

func (a account) begin(t *testing.T) *sql.Tx {
	tx, err := a.db.BeginTx(t.Context(), a.options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// write withdraws with that token. It retries after errors that ask for it.
func (a account) write(t *testing.T, token int64) error {
	for i := 0; ; i++ {
		err := a.writeOnce(t, token)
		if !retryable(err) || i == 10 {
			return err
		}
	}
}

func (a account) writeOnce(t *testing.T, token int64) error {
	tx := a.begin(t)
	if err := a.withdraw(t.Context(), tx, token); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// retryable reports whether the database asks the client to retry the
// transaction.
func retryable(err error) bool {
	var pg *pgconn.PgError
	var my *mysqldriver.MySQLError
	return errors.As(err, &pg) && pg.Code == "40001" ||
		errors.As(err, &my) && (my.Number == 1205 || my.Number == 1213)
}

func (a account) has(t *testing.T, balance int) {
	t.Helper()
	var got int
	require.NoError(t, a.db.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 7").Scan(&got))
	assert.Equal(t, balance, got)
}

func lateWrite(t *testing.T, a account) {
	require.NoError(t, a.write(t, a.new))
	assert.ErrorIs(t, a.write(t, a.old), errStale)
	a.has(t, 90)
}

// The old holder is paused after a read, so its transaction may see an old
// snapshot.
func lateAfterRead(t *testing.T, a account) {
	tx := a.begin(t)
	var token int64
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT token FROM fence WHERE resource = 'account/7'").Scan(&token))
	require.NoError(t, a.write(t, a.new))
	err := a.withdraw(t.Context(), tx, a.old)
	assert.True(t, errors.Is(err, errStale) || retryable(err), "%v", err)
	require.NoError(t, tx.Rollback())
	a.has(t, 90)
}

func secondWrite(t *testing.T, a account) {
	require.NoError(t, a.write(t, a.old))
	require.NoError(t, a.write(t, a.old))
	a.has(t, 80)
}

// The old holder passes the fence and is paused. It commits while the new
// holder waits at the fence. The new holder must see that write.
func newHolderWaits(t *testing.T, a account) {
	tx := a.begin(t)
	require.NoError(t, a.withdraw(t.Context(), tx, a.old))
	wrote := make(chan error)
	go func() { wrote <- a.write(t, a.new) }()
	require.NoError(t, tx.Commit())
	require.NoError(t, <-wrote)
	a.has(t, 80)
	assert.ErrorIs(t, a.write(t, a.old), errStale)
}

// The new holder's snapshot is older than the old holder's second commit, as if
// it had waited at the fence. It must not work with that snapshot.
func snapshotWhileWaiting(t *testing.T, a account) {
	require.NoError(t, a.write(t, a.old))
	tx := a.begin(t)
	_, err := tx.ExecContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	require.NoError(t, a.write(t, a.old))
	if err := a.pass(t.Context(), tx, "account/7", a.new); err != nil {
		assert.True(t, retryable(err), "%v", err)
		return
	}
	var balance int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 7").Scan(&balance))
	assert.Equal(t, 80, balance)
}

func rolledBack(t *testing.T, a account) {
	tx := a.begin(t)
	require.NoError(t, a.withdraw(t.Context(), tx, a.new))
	require.NoError(t, tx.Rollback())
	assert.NoError(t, a.write(t, a.old), "nobody has written with the new token")
}

func withoutRow(t *testing.T, a account) {
	tx := a.begin(t)
	assert.ErrorIs(t, a.pass(t.Context(), tx, "account/8", a.new), sql.ErrNoRows)
}

func higherEpoch(t *testing.T, a account) {
	_, err := a.db.ExecContext(t.Context(), "UPDATE fence SET epoch = 1, token = 1")
	require.NoError(t, err)
	assert.ErrorIs(t, a.write(t, a.new), errStale)
}
