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

// A forUpdate is a row locked by an open transaction. For work in this database
// alone it is enough, because PostgreSQL commits the changes and releases the
// lock in one step.
//
// It breaks for work outside the database. The lock ends with the connection,
// which the process does not notice before its next statement. If the holder's
// machine disappears, on the other hand, the server keeps the lock for as long
// as it considers the connection alive. An open transaction also keeps VACUUM
// from removing dead rows.
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

func (l *forUpdate) check() error { return nil } // only a statement would reveal a loss

// unlock changes the row and commits, which releases the lock.
func (l *forUpdate) unlock(ctx context.Context) error {
	if _, err := l.tx.ExecContext(ctx, "UPDATE account SET balance = balance - 30 WHERE id = 7"); err != nil {
		return err
	}
	return l.tx.Commit()
}

// A rowStore is a PostgreSQL schema for one test.
type rowStore struct {
	*pgtest.Server
	schema string
	limit  string // connection parameter
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

func (s rowStore) terminate(t testing.TB, process string) {
	s.SQL(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '"+s.schema+process+"'")
}

// TestForUpdateEndsWithTheConnection closes a holder's connection while the
// holder works outside the database. Either a time limit of the server or an
// operator ends the connection. B gets the lock without A's knowledge. In
// contrast, a session of dlock survives the loss of a connection.
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
				require.Eventually(t, func() bool { return a.unlock() == nil }, bound, 10*time.Millisecond) // broken connections may fail first
				require.Greater(t, b.granted(), first)
			})
		})
	}
}

// TestForUpdateOutlivesItsMachine kills the holder together with its network,
// so that the server never sees the connection end. The server keeps the lock,
// because by default it leaves the detection of dead connections to the
// operating system, which takes hours.
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
		for range 10 { // no end in sight
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

func tryForUpdate(t testing.TB, s setting) (sql.Result, error) {
	db, err := sql.Open("pgx", s.Servers[0])
	require.NoError(t, err)
	defer db.Close()
	return db.ExecContext(t.Context(), "SELECT balance FROM account WHERE id = 7 FOR UPDATE NOWAIT")
}

// TestForUpdateOfAHolderThatIsCutOff cuts A off for longer than the server's
// idle limit while A works. With FOR UPDATE A does not notice. With dlock A
// knows of the loss by the time B is granted the lock.
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
