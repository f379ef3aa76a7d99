package handmade

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/pgtest"
)

// An advisory is a lock in the memory of the PostgreSQL server. It is
// PostgreSQL's fastest lock, because it writes nothing.
//
// It belongs to a server connection, not to a process. Behind a proxy or a pool
// two processes may share a connection, which may take its own lock again. A
// crash of the server forgets the lock.
type advisory struct {
	db     *sql.DB
	conn   *sql.Conn
	number int
}

func newAdvisory(s setting, _ *points) (locker, error) {
	db, err := sql.Open("pgx", s.Servers[0])
	return &advisory{db: db, number: s.Number}, err
}

func (l *advisory) lock(ctx context.Context) (_ int64, err error) {
	if l.conn, err = l.db.Conn(ctx); err != nil {
		return 0, err
	}
	_, err = l.conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", l.number)
	return 0, err
}

func (l *advisory) check() error { return nil } // only a statement would reveal a loss

func (l *advisory) unlock(ctx context.Context) error {
	var unlocked bool
	if err := l.conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock($1)", l.number).Scan(&unlocked); err != nil {
		return err
	}
	if !unlocked {
		return errors.New("this connection has no such lock")
	}
	return l.conn.Close()
}

// behindPgbouncer returns settings for connections through a proxy that keeps
// at most the given number of server connections. The lock's key is number.
func behindPgbouncer(t testing.TB, server *pgtest.Server, connections, number int) (hand, dlock setting) {
	addr := server.Pgbouncer(t, connections)
	const exec = "default_query_exec_mode=exec" // for releases of pgbouncer without prepared statements
	return setting{Lock: "advisory", Number: number, Servers: []string{server.DSNAt(addr, exec)}},
		useDlock("postgres", server.DSNAt(addr, exec, "schema="+server.Schema(), "session_timeout="+sessionTimeout.String()))
}

// TestAnAdvisoryLockIsTakenAgain has two processes behind pgbouncer, which
// sends their statements over one server connection. Both get the lock.
func TestAnAdvisoryLockIsTakenAgain(t *testing.T) {
	t.Parallel()
	hand, dlock := behindPgbouncer(t, pgtest.Shared(t), 1, 42)
	t.Run("by hand", func(t *testing.T) {
		a, b := start(t, "A", hand), start(t, "B", hand)
		a.lock()
		b.lock()
		require.NoError(t, a.check(), "two holders")
	})
	t.Run("dlock", func(t *testing.T) { requireOrder(t, dlock) })
}

// TestAnAdvisoryLockIsTakenAgainInAPool shows that two goroutines can get the
// lock even without a proxy, because the methods of *sql.DB use any connection
// of the pool.
func TestAnAdvisoryLockIsTakenAgainInAPool(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", pgtest.Shared(t).DSN())
	require.NoError(t, err)
	defer db.Close()
	for range 2 { // one goroutine after the other
		_, err = db.ExecContext(t.Context(), "SELECT pg_advisory_lock(43)")
		require.NoError(t, err)
	}
}

// TestAnAdvisoryUnlockGoesToAnotherConnection makes pgbouncer send the unlock
// over another connection than the lock, so that the lock outlives its holder.
func TestAnAdvisoryUnlockGoesToAnotherConnection(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	hand, dlock := behindPgbouncer(t, server, 2, 44)
	t.Run("by hand", func(t *testing.T) {
		a := start(t, "A", hand)
		a.lock()
		other, err := sql.Open("pgx", hand.Servers[0])
		require.NoError(t, err)
		defer other.Close()
		tx, err := other.BeginTx(t.Context(), nil) // occupies the only connection, on which A has locked
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "SELECT 1")
		require.NoError(t, err)
		require.Error(t, a.unlock())
		require.NoError(t, tx.Rollback())
		a.kill()
		require.Equal(t, "f", server.SQL(t, "SELECT pg_try_advisory_lock(44)"), "the lock stays")
	})
	t.Run("dlock", func(t *testing.T) {
		a, b := start(t, "A", dlock), start(t, "B", dlock)
		first := a.lock()
		require.NoError(t, a.unlock())
		require.Greater(t, b.lock(), first)
	})
}

// TestAnAdvisoryLockIsForgotten crashes the server while holder A is idle. The
// restarted server knows nothing of A's lock.
func TestAnAdvisoryLockIsForgotten(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	crash := func() {
		server.Kill()
		server.Restart()
	}
	t.Run("by hand", func(t *testing.T) {
		s := setting{Lock: "advisory", Number: 42, Servers: []string{server.DSN()}}
		a, b := start(t, "A", s), start(t, "B", s)
		var r resource
		a.lock()
		crash()
		b.lock()
		require.NoError(t, a.check(), "two holders")
		require.NoError(t, b.write(&r))
		require.NoError(t, a.write(&r), "the late write")
		require.Error(t, a.unlock(), "this is how A learns of it")
	})
	t.Run("dlock", func(t *testing.T) {
		requireSurvivesRestart(t, useDlock("postgres", server.DSN("schema="+server.Schema(), "session_timeout=1m")), crash)
	})
}

// TestAnAdvisoryLockOfAnotherName derives the key of an advisory lock from its
// name with hashtext. Two unrelated names with the same hash block each other.
func TestAnAdvisoryLockOfAnotherName(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	row := server.SQL(t, `SELECT min(name), max(name) FROM (SELECT 'stock/' || n AS name FROM generate_series(1, 300000) n) names
		GROUP BY hashtext(name) HAVING count(*) > 1 LIMIT 1`)
	one, other, found := strings.Cut(row, "|")
	require.True(t, found, row)
	t.Run("by hand", func(t *testing.T) {
		db, err := sql.Open("pgx", server.DSN())
		require.NoError(t, err)
		defer db.Close()
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(hashtext($1))", one)
		require.NoError(t, err)
		require.Equal(t, "f", server.SQL(t, "SELECT pg_try_advisory_lock(hashtext('"+other+"'))"))
	})
	t.Run("dlock", func(t *testing.T) {
		client := open(t, useDlock("postgres", server.DSN("schema="+server.Schema())))
		for _, name := range []string{one, other} {
			_, err := client.RWMutex(name).TryLock(t.Context())
			require.NoError(t, err)
		}
	})
}
