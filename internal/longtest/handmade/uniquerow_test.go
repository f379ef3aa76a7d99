package handmade

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/dlock-go/dlock/internal/pgtest"
)

// A rowLock is a row with a unique key: whoever inserts it holds the lock. It
// works in any SQL database and survives a restart of the server.
//
// It breaks when its holder dies, because nobody deletes the row. With an
// expiry, processes delete rows that are too old, and with them the lock of a
// live but slow holder. Waiters poll, so there is no order among them.
type rowLock struct {
	db     *sql.DB
	expiry time.Duration // 0 if the row never expires
	now    func() time.Time
	points *points
}

const createHeld = "CREATE TABLE held (name text PRIMARY KEY, expires bigint NOT NULL)"

func newRowLock(s setting, p *points) (locker, error) {
	driver, dsn, _ := strings.Cut(s.Servers[0], " ")
	db, err := sql.Open(driver, dsn)
	now := func() time.Time { return time.Now().Add(s.Ahead) }
	return &rowLock{db, s.Expiry, now, p}, err
}

func (l *rowLock) lock(ctx context.Context) (int64, error) {
	for {
		if l.expiry > 0 {
			_, err := l.db.ExecContext(ctx, "DELETE FROM held WHERE name = $1 AND expires < $2", name, l.now().UnixMilli())
			if err != nil {
				return 0, err
			}
		}
		result, err := l.db.ExecContext(ctx, "INSERT INTO held VALUES ($1, $2) ON CONFLICT DO NOTHING",
			name, l.now().Add(l.expiry).UnixMilli())
		if err != nil {
			return 0, err
		}
		if n, err := result.RowsAffected(); n == 1 || err != nil {
			return 0, err
		}
		l.points.refused()
	}
}

func (l *rowLock) check() error { return nil } // only a query would reveal a loss

func (l *rowLock) unlock(ctx context.Context) error {
	_, err := l.db.ExecContext(ctx, "DELETE FROM held WHERE name = $1", name)
	return err
}

// A sqlStore is a new database for one test.
type sqlStore struct {
	hand  string // driver and data source name of hand-written locks
	dlock setting
}

func newPostgres(t testing.TB) sqlStore {
	server := pgtest.Shared(t)
	schema := server.Schema()
	server.SQL(t, "CREATE SCHEMA "+schema)
	return sqlStore{
		hand:  "pgx " + server.DSN("search_path="+schema),
		dlock: useDlock("postgres", server.DSN("schema="+schema+"_dlock", "session_timeout="+sessionTimeout.String())),
	}
}

func newSQLite(t testing.TB) sqlStore {
	dir := t.TempDir()
	return sqlStore{
		hand:  "sqlite " + filepath.Join(dir, "hand.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)",
		dlock: useDlock("sqlite", filepath.Join(dir, "dlock.db")+"?session_timeout="+sessionTimeout.String()),
	}
}

func (s sqlStore) connect(t testing.TB, statement string) *sql.DB {
	t.Helper()
	driver, dsn, _ := strings.Cut(s.hand, " ")
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	return db
}

func newRow(t testing.TB, store sqlStore, expiry time.Duration) setting {
	store.connect(t, createHeld)
	return setting{Lock: "row", Servers: []string{store.hand}, Expiry: expiry}
}

func onEachDatabase(t *testing.T, test func(t *testing.T, store sqlStore)) {
	t.Run("PostgreSQL", func(t *testing.T) { test(t, newPostgres(t)) })
	t.Run("SQLite", func(t *testing.T) { test(t, newSQLite(t)) })
}

func TestARowOutlivesItsHolder(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, store sqlStore) {
		t.Run("by hand", func(t *testing.T) {
			requireDeadHolderBlocks(t, newRow(t, store, 0), func(a *process) { a.lock() })
		})
		t.Run("dlock", func(t *testing.T) { requireDeadHolderIsReplaced(t, store.dlock) })
	})
}

// TestAPausedHolderOfARow pauses the holder of a row that expires. Another
// process deletes the row and inserts its own, so that two processes hold the
// lock. The unlock of the first one lets in a third.
func TestAPausedHolderOfARow(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, store sqlStore) {
		short := newRow(t, store, 500*time.Millisecond)
		long := short
		long.Expiry = time.Hour
		require.Equal(t, pause{told: false, lateWrite: true, thirdOne: true}, pausedHolder(t, short, long))
	})
	// The test leaves out SQLite, because a process stopped within a
	// transaction blocks the file for all others.
	t.Run("dlock on PostgreSQL", func(t *testing.T) {
		s := newPostgres(t).dlock
		require.Equal(t, pause{told: true, lateWrite: false, thirdOne: false}, pausedHolder(t, s, s))
	})
}

// TestAHolderOfARowThatWorksForLong has a holder whose work takes longer than
// the expiry. Another process gets the lock although the first was not paused.
func TestAHolderOfARowThatWorksForLong(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, store sqlStore) {
		t.Run("by hand", func(t *testing.T) {
			s := newRow(t, store, 500*time.Millisecond)
			a, b := start(t, "A", s), start(t, "B", s)
			a.lock()
			b.lock()
			require.NoError(t, a.check(), "two holders")
		})
		t.Run("dlock", func(t *testing.T) { requireLongWork(t, store.dlock) })
	})
}

// TestARowExpiresEarlyForAClockThatIsAhead sets the clock of one process wrong.
// The processes of a rowLock compare the expiry with their own clocks, whereas
// dlock's drivers rely on the server's clock alone.
func TestARowExpiresEarlyForAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	s := newRow(t, newPostgres(t), time.Hour)
	ahead := s
	ahead.Ahead = 2 * time.Hour
	a, b := start(t, "A", s), start(t, "B", ahead)
	a.lock()
	b.lock()
	require.NoError(t, a.check(), "two holders")
}

func TestARowHasNoOrder(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, store sqlStore) {
		t.Run("by hand", func(t *testing.T) { requireOvertaken(t, newRow(t, store, 0)) })
		t.Run("dlock", func(t *testing.T) { requireOrder(t, store.dlock) })
	})
}
