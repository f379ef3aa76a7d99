package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// The server syncs every commit to disk, as in production.
func ways(b *testing.B) []testenv.Way {
	server := mysqltest.Start(b, mysqltest.WithConfig("innodb_flush_method=O_DIRECT", "innodb_flush_log_at_trx_commit=1"))
	database := server.Database()
	server.SQL(b, database, "CREATE TABLE bench (id int PRIMARY KEY) ENGINE=InnoDB; INSERT INTO bench VALUES (42)")
	return []testenv.Way{
		testenv.Dlock(b, "mysql", server.DSN(database, "session_timeout=1m")),
		testenv.Connection(b, "get_lock", "mysql", server.DSN(database), func(ctx context.Context, c *sql.Conn) error {
			var got sql.NullInt64
			if err := c.QueryRowContext(ctx, "SELECT GET_LOCK('bench', 60)").Scan(&got); err != nil || got.Int64 != 1 {
				return cmp.Or(err, errors.New("the lock was not granted"))
			}
			return c.QueryRowContext(ctx, "SELECT RELEASE_LOCK('bench')").Scan(&got)
		}),
		testenv.Connection(b, "forupdate", "mysql", server.DSN(database), func(ctx context.Context, c *sql.Conn) error {
			tx, err := c.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			var id int
			if err := tx.QueryRowContext(ctx, "SELECT id FROM bench WHERE id = 42 FOR UPDATE").Scan(&id); err != nil {
				return err
			}
			return tx.Commit()
		}),
	}
}

// Only dlock writes to disk, once per lock and once per unlock.
func BenchmarkFree(b *testing.B) { testenv.Free(b, ways(b)) }

func BenchmarkContended(b *testing.B) { testenv.Contended(b, ways(b)) }
