package fencing

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

// database holds the tables dlock_fence and account. Its transactions all have
// the same isolation level.
type database struct {
	*sql.DB
	name  string // database and isolation level, for subtests
	table fence.Table
	level sql.IsolationLevel
}

var stories = map[string]func(*testing.T, database){
	"late and second write":         lateAndSecondWrite,
	"kit":                           tablePassesTheKit,
	"new holder waits at the fence": newHolderWaits,
	"old snapshot":                  oldSnapshot,
	"locking read":                  lockingRead,
	"nothing kept":                  nothingKept,
	"rollback":                      rollback,
	"epoch":                         epoch,
	"row of a resource":             rowOfAResource,
	"many calls of Add":             manyAdds,
	"majority":                      majority,
}

func TestSQLite(t *testing.T) { tell(t, sqliteFile(t)) }

func TestPostgreSQL(t *testing.T) {
	all := postgreSQL(t)
	tell(t, all)
	t.Run("own calls of pgx", func(t *testing.T) { ownCallsOfPgx(t, all[0]) })
}

func TestMariaDB(t *testing.T) {
	server := mysqltest.Start(t)
	all := mariaDB(t, server)
	tell(t, all)
	t.Run("engine", func(t *testing.T) { printedEngine(t, server.DSN(server.Database(), "default_storage_engine=MEMORY")) })
	t.Run("column that ignores case", func(t *testing.T) { columnIgnoresCase(t, all[0]) })
}

// tell runs each test in stories on each database, after resetting its tables.
func tell(t *testing.T, databases []database) {
	for _, db := range databases {
		for name, story := range stories {
			t.Run(db.name+"/"+name, func(t *testing.T) {
				db.reset(t)
				story(t, db)
			})
		}
	}
}

func atEachLevel(name string, db *sql.DB, table fence.Table) (all []database) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		all = append(all, database{db, name + ", " + level.String(), table, level})
	}
	return all
}

func postgreSQL(t *testing.T) []database {
	db := connect(t, "pgx", pgtest.Start(t).DSN(), printed(t)[0])
	return atEachLevel("PostgreSQL", db, fence.Table{Name: "public.dlock_fence", Dollar: true})
}

func mariaDB(t *testing.T, server *mysqltest.Server) []database {
	db := connect(t, "mysql", server.DSN(server.Database(), "innodb_lock_wait_timeout=1"), printed(t)[1])
	return atEachLevel("MariaDB", db, fence.Table{})
}

func sqliteFile(t *testing.T) (all []database) {
	for _, begin := range []string{"deferred", "immediate"} {
		file := filepath.Join(t.TempDir(), "shop.db")
		db := connect(t, "sqlite", file+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(200)&_txlock="+begin, printed(t)[0])
		all = append(all, database{db, "SQLite, begin " + begin, fence.Table{}, sql.LevelDefault})
	}
	return all
}

// printed returns the statements in the comment of [fence.Table]. The second is
// for MySQL.
func printed(t *testing.T) []string {
	source, err := os.ReadFile("../../../../fence/table.go")
	require.NoError(t, err)
	statements := regexp.MustCompile(`(?s)CREATE TABLE.*?\n//\n`).FindAllString(string(source), -1)
	require.Len(t, statements, 2)
	return []string{strings.ReplaceAll(statements[0], "//", ""), strings.ReplaceAll(statements[1], "//", "")}
}

func connect(t *testing.T, driver, dsn, createFence string) *sql.DB {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	for _, statement := range []string{
		createFence,
		"CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)",
		"INSERT INTO account (id, balance) VALUES (7, 100)",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	return db
}

func (db database) reset(t *testing.T) {
	t.Helper()
	for _, statement := range []string{"DELETE FROM dlock_fence", "UPDATE account SET balance = 100"} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, db.table.Add(t.Context(), db.DB, "account/7"))
}

func (db database) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: db.level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (db database) in(ctx context.Context, f func(tx *sql.Tx) error) error {
	for {
		if err := db.once(ctx, f); !toRepeat(err) || ctx.Err() != nil {
			return err
		}
	}
}

func (db database) once(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: db.level})
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func toRepeat(err error) bool {
	var pg *pgconn.PgError
	var my *mysqldriver.MySQLError
	var lite *sqlite.Error
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01") ||
		errors.As(err, &my) && (my.Number == 1020 || my.Number == 1205 || my.Number == 1213) ||
		errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_BUSY
}

func (db database) has(t *testing.T, balance int) {
	t.Helper()
	var got int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 7").Scan(&got))
	assert.Equal(t, balance, got)
}
