package postgres

import (
	"context"
	"database/sql"
	"testing"

	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// The server syncs every commit to disk, as in production.
func ways(b *testing.B) []testenv.Way {
	server := pgtest.Start(b, pgtest.WithConfig("fsync=on"))
	server.SQL(b, "CREATE TABLE bench (id int PRIMARY KEY); INSERT INTO bench VALUES (42)")
	return []testenv.Way{
		testenv.Dlock(b, "postgres", server.DSN("session_timeout=1m")),
		testenv.Connection(b, "advisory", "pgx", server.DSN(), func(ctx context.Context, c *sql.Conn) error {
			if _, err := c.ExecContext(ctx, "SELECT pg_advisory_lock(42)"); err != nil {
				return err
			}
			_, err := c.ExecContext(ctx, "SELECT pg_advisory_unlock(42)")
			return err
		}),
		testenv.Connection(b, "forupdate", "pgx", server.DSN(), func(ctx context.Context, c *sql.Conn) error {
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

// Of the compared locks, only dlock writes to disk: to lock and to unlock.
func BenchmarkFree(b *testing.B) { testenv.Free(b, ways(b)) }

func BenchmarkContended(b *testing.B) { testenv.Contended(b, ways(b)) }
