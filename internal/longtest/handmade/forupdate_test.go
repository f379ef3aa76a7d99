package handmade

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// A forUpdate is the lock of a row that an open transaction holds. PostgreSQL commits
// the changes and releases the lock in one step. For work in this database alone that
// is enough.
//
// It breaks for work that leaves the database: the lock lasts as long as the
// connection, and the process does not learn of its end before its next statement. It
// also lasts no less long: if the machine of the holder disappears, the server keeps
// the lock for as long as it believes in the connection.
//
// (An open transaction also keeps VACUUM from removing rows that were deleted since.)
type forUpdate struct {
	db *sql.DB
	tx *sql.Tx
}

const createAccount = "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL); INSERT INTO account VALUES (7, 100)"

func newForUpdate(s setting, _ *points) (locker, error) {
	db, err := sql.Open("pgx", s.Servers[0])
	return &forUpdate{db: db}, err
}

func (l *forUpdate) lock(ctx context.Context) (int64, error) {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	l.tx = tx
	_, err = tx.ExecContext(ctx, "SELECT balance FROM account WHERE id = 7 FOR UPDATE")
	return 0, err
}

func (l *forUpdate) check() error { return nil } // only a statement would tell

// unlock ends the work with a change of the row.
func (l *forUpdate) unlock(ctx context.Context) error {
	if _, err := l.tx.ExecContext(ctx, "UPDATE account SET balance = balance - 30 WHERE id = 7"); err != nil {
		return err
	}
	return l.tx.Commit()
}

// A rowStore is a schema of the server that the tests share. Its methods hand and dlock
// return settings for a process with that name, which reaches the server at addr.
type rowStore struct {
	*pgtest.Server
	schema string
	limit  string // a parameter of the connections
}

const (
	noLimit   = "options="
	idleLimit = "options=-c%20idle_in_transaction_session_timeout%3D1s"
)

func newRowStore(t testing.TB, limit string) rowStore {
	server := pgtest.Shared(t)
	schema := server.Schema()
	server.SQL(t, "CREATE SCHEMA "+schema+"; SET search_path = "+schema+"; "+createAccount)
	return rowStore{server, schema, limit}
}

func (s rowStore) hand(process, addr string) setting {
	return setting{Lock: "for update", Servers: []string{s.DSNAt(addr, "search_path="+s.schema, s.limit, "application_name="+s.schema+process)}}
}

func (s rowStore) dlock(process, addr string) setting {
	return useDlock("postgres", s.DSNAt(addr, "schema="+s.schema, s.limit, "application_name="+s.schema+process, "session_timeout="+sessionTimeout.String()))
}

// terminate ends the connections of a process.
func (s rowStore) terminate(t testing.TB, process string) {
	s.SQL(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '"+s.schema+process+"'")
}

// TestForUpdateEndsWithTheConnection ends the connection of a holder, in the two ways
// in which servers do that, while the holder works outside of the database. The lock
// goes to B, and A does not know. A session of dlock outlives a connection.
func TestForUpdateEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"a limit of the server": idleLimit, "an operator": noLimit} {
		t.Run(name, func(t *testing.T) {
			store := newRowStore(t, limit)
			end := func() {
				if limit == noLimit {
					store.terminate(t, "A")
				}
			}
			t.Run("by hand", func(t *testing.T) {
				a, b := start(t, "A", store.hand("A", store.Addr())), start(t, "B", store.hand("B", store.Addr()))
				var r resource
				a.lock()
				end()
				b.lock()
				require.NoError(t, a.check(), "two holders")
				require.NoError(t, b.write(&r))
				require.NoError(t, a.write(&r), "the late write")
				require.Error(t, a.unlock(), "this is how A learns of it")
			})
			t.Run("dlock", func(t *testing.T) {
				s := store.dlock("A", store.Addr())
				a, b := start(t, "A", s), start(t, "B", store.dlock("B", store.Addr()))
				first := a.lock()
				b.contend()
				end()
				awaitQueue(t, store.dlock("test", store.Addr()), first, 0)
				require.NoError(t, a.check())
				require.Eventually(t, func() bool { return a.unlock() == nil }, bound, 10*time.Millisecond) // the old connections may fail first
				require.Greater(t, b.granted(), first)
			})
		})
	}
}

// TestForUpdateOutlivesItsMachine lets the machine of the holder disappear: the process
// is dead, and the server never hears of the end of the connection. The server keeps
// the lock. By default it leaves the search for dead connections to the operating
// system, which takes hours.
func TestForUpdateOutlivesItsMachine(t *testing.T) {
	t.Parallel()
	store := newRowStore(t, noLimit)
	disappear := func(a *process, network *testenv.Proxy) {
		network.Cut()
		a.kill()
	}
	t.Run("by hand", func(t *testing.T) {
		network := testenv.NewProxy(t, store.Addr(), nil)
		a := start(t, "A", store.hand("A", network.Addr()))
		a.lock()
		disappear(a, network)
		for range 10 { // and so on
			_, err := tryForUpdate(t, store.hand("B", store.Addr()))
			require.ErrorContains(t, err, "could not obtain lock")
		}
		require.Equal(t, "0", store.SQL(t, "SELECT reset_val FROM pg_settings WHERE name = 'tcp_keepalives_idle'"), "the operating system decides")
	})
	t.Run("dlock", func(t *testing.T) {
		network := testenv.NewProxy(t, store.Addr(), nil)
		a, b := start(t, "A", store.dlock("A", network.Addr())), start(t, "B", store.dlock("B", store.Addr()))
		first := a.lock()
		disappear(a, network)
		require.Greater(t, b.lock(), first)
	})
}

// tryForUpdate asks for the lock of the row, and does not wait for it.
func tryForUpdate(t testing.TB, s setting) (sql.Result, error) {
	db, err := sql.Open("pgx", s.Servers[0])
	require.NoError(t, err)
	defer db.Close()
	return db.ExecContext(t.Context(), "SELECT balance FROM account WHERE id = 7 FOR UPDATE NOWAIT")
}

// TestForUpdateOfAHolderThatIsCutOff cuts the network between A and the server for
// longer than the server waits, and A goes on working. With FOR UPDATE A knows nothing.
// With dlock A knows of its loss by the time B gets the lock.
func TestForUpdateOfAHolderThatIsCutOff(t *testing.T) {
	t.Parallel()
	store := newRowStore(t, idleLimit)
	cutOff := func(t *testing.T, use func(process, addr string) setting) (told, late error) {
		network := testenv.NewProxy(t, store.Addr(), nil)
		a, b := start(t, "A", use("A", network.Addr())), start(t, "B", use("B", store.Addr()))
		var r resource
		a.lock()
		network.Cut()
		b.lock()
		told = a.check()
		require.NoError(t, b.write(&r))
		return told, a.write(&r)
	}
	t.Run("by hand", func(t *testing.T) {
		told, late := cutOff(t, store.hand)
		require.NoError(t, told)
		require.NoError(t, late)
	})
	t.Run("dlock", func(t *testing.T) {
		told, late := cutOff(t, store.dlock)
		require.Error(t, told)
		require.ErrorIs(t, late, errStale)
	})
}
