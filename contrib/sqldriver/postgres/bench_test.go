package postgres

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/internal/pgtest"
)

// ways returns the locks to compare: dlock, and handwritten ones on the same
// server. The server syncs every commit to disk, as in production.
func ways(b *testing.B) []sqltest.Way {
	server := pgtest.Start(b, pgtest.WithConfig("fsync=on"))
	server.SQL(b, "CREATE TABLE bench (id int PRIMARY KEY); INSERT INTO bench VALUES (42)")
	return []sqltest.Way{
		sqltest.Dlock(b, "postgres", server.DSN("session_timeout=1m")),
		sqltest.Connection(b, "advisory", "pgx", server.DSN(), func(ctx context.Context, c *sql.Conn) error {
			if _, err := c.ExecContext(ctx, "SELECT pg_advisory_lock(42)"); err != nil {
				return err
			}
			_, err := c.ExecContext(ctx, "SELECT pg_advisory_unlock(42)")
			return err
		}),
		sqltest.Connection(b, "forupdate", "pgx", server.DSN(), func(ctx context.Context, c *sql.Conn) error {
			tx, err := c.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "SELECT FROM bench WHERE id = 42 FOR UPDATE"); err != nil {
				return err
			}
			return tx.Commit()
		}),
	}
}

// Of the compared locks only dlock writes to the disk, once to lock and once to
// unlock.
func BenchmarkFree(b *testing.B) { sqltest.Free(b, ways(b)) }

func BenchmarkContended(b *testing.B) { sqltest.Contended(b, ways(b)) }
