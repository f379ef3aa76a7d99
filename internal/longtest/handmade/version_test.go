package handmade

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/recipes"
)

// A versioned is a row with a version. An update names the version that was
// read and fails if the row has another one. That prevents lost updates of a
// single row and blocks nobody.
//
// A version protects neither effects outside the row nor a rule about several
// rows. A slow process may lose its work again and again.
type versioned struct {
	value, version int
}

const createFence = "CREATE TABLE dlock_fence (resource VARCHAR(512) PRIMARY KEY, epoch BIGINT NOT NULL, token BIGINT NOT NULL, checks BIGINT NOT NULL)"

const createOrder = "CREATE TABLE item (id int PRIMARY KEY, value int NOT NULL, version int NOT NULL)"

func read(t testing.TB, db *sql.DB, id int) (row versioned) {
	t.Helper()
	err := db.QueryRowContext(t.Context(), "SELECT value, version FROM item WHERE id = $1", id).Scan(&row.value, &row.version)
	require.NoError(t, err)
	return row
}

// update changes a row unless its version has changed since it was read.
func update(t testing.TB, db *sql.DB, id, value int, read versioned) bool {
	t.Helper()
	return changed(t, db, "UPDATE item SET value = $1, version = version + 1 WHERE id = $2 AND version = $3", value, id, read.version)
}

func changed(t testing.TB, db *sql.DB, statement string, args ...any) bool {
	t.Helper()
	result, err := db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	return n == 1
}

func newItems(t testing.TB, store sqlStore) *sql.DB {
	db := store.connect(t, createOrder)
	_, err := db.ExecContext(t.Context(), "INSERT INTO item (id, value, version) VALUES (1, 1, 1), (2, 1, 1)")
	require.NoError(t, err)
	return db
}

func reset(t testing.TB, db *sql.DB) {
	_, err := db.ExecContext(t.Context(), "UPDATE item SET value = 1, version = 1")
	require.NoError(t, err)
}

// lockInBackground calls Lock in a goroutine, and returns once the call waits.
func lockInBackground(t testing.TB, mutex *dlock.RWMutex, waits <-chan struct{}) <-chan *dlock.Lock {
	t.Helper()
	granted := make(chan *dlock.Lock, 1)
	go func() {
		lock, err := mutex.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		granted <- lock
	}()
	<-waits
	return granted
}

// contenders returns two clients of one lock. The channel waits receives a
// value when the second client has to wait.
func contenders(t testing.TB, s setting) (a, b *dlock.RWMutex, waits <-chan struct{}) {
	t.Helper()
	waiting := make(chan struct{}, 100)
	a = open(t, s).RWMutex(name)
	client, err := openDlock(s.Servers[0], dlock.WithTrace(&recipes.Trace{
		Waiting: func(context.Context, recipes.WaitingInfo) { waiting <- struct{}{} },
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return a, client.RWMutex(name), waiting
}

// TestAVersionDoesNotProtectAnEffect lets two processes mail a customer and
// then note that in the order. The mail is sent twice. With dlock the second
// process reads the note first.
func TestAVersionDoesNotProtectAnEffect(t *testing.T) {
	t.Parallel()
	const notSent, sent = 1, 2
	onEachDatabase(t, func(t *testing.T, store sqlStore) {
		db := newItems(t, store)
		t.Run("by hand", func(t *testing.T) {
			mails := 0
			a, b := read(t, db, 1), read(t, db, 1)
			for _, row := range []versioned{a, b} {
				if row.value == notSent {
					mails++
				}
			}
			require.True(t, update(t, db, 1, sent, a))
			require.False(t, update(t, db, 1, sent, b))
			require.Equal(t, 2, mails)
		})
		t.Run("dlock", func(t *testing.T) {
			reset(t, db)
			mails := 0
			work := func() {
				if row := read(t, db, 1); row.value == notSent {
					mails++
					require.True(t, update(t, db, 1, sent, row))
				}
			}
			a, b, waits := contenders(t, store.dlock)
			first, err := a.Lock(t.Context())
			require.NoError(t, err)
			granted := lockInBackground(t, b, waits)
			work()
			require.NoError(t, first.Unlock())
			second := <-granted
			work()
			require.NoError(t, second.Unlock())
			require.Equal(t, 1, mails)
		})
	})
}

// TestVersionsDoNotProtectARule has two doctors, one of whom must stay on duty.
// Each process reads both rows and takes a different doctor off duty, and
// neither finds that its row's version has changed.
func TestVersionsDoNotProtectARule(t *testing.T) {
	t.Parallel()
	const off, on = 0, 1
	leave := func(t testing.TB, db *sql.DB, id int, rows [3]versioned) {
		if rows[1].value+rows[2].value > 1 {
			require.True(t, update(t, db, id, off, rows[id]))
		}
	}
	readBoth := func(t testing.TB, db *sql.DB) [3]versioned { return [3]versioned{1: read(t, db, 1), 2: read(t, db, 2)} }
	onDuty := func(t testing.TB, db *sql.DB) int { return read(t, db, 1).value + read(t, db, 2).value }
	onEachDatabase(t, func(t *testing.T, store sqlStore) {
		db := newItems(t, store)
		t.Run("by hand", func(t *testing.T) {
			a, b := readBoth(t, db), readBoth(t, db)
			leave(t, db, 1, a)
			leave(t, db, 2, b)
			require.Zero(t, onDuty(t, db))
		})
		t.Run("dlock", func(t *testing.T) {
			reset(t, db)
			a, b, waits := contenders(t, store.dlock)
			first, err := a.Lock(t.Context())
			require.NoError(t, err)
			seen := readBoth(t, db)
			granted := lockInBackground(t, b, waits)
			leave(t, db, 1, seen)
			require.NoError(t, first.Unlock())
			second := <-granted
			leave(t, db, 2, readBoth(t, db))
			require.NoError(t, second.Unlock())
			require.Equal(t, on, onDuty(t, db))
		})
	})
}

// TestASlowWriterLosesByItsVersion lets a fast process update a row while a
// slow one works. Each time, the slow process loses its work. With dlock, the
// slow process waits only until the fast one has held the lock once.
func TestASlowWriterLosesByItsVersion(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, store sqlStore) {
		t.Run("by hand", func(t *testing.T) {
			db := newItems(t, store)
			for range 10 { // no end in sight
				slow := read(t, db, 1)
				fast := read(t, db, 1)
				require.True(t, update(t, db, 1, fast.value+1, fast))
				require.False(t, update(t, db, 1, slow.value+1, slow))
			}
		})
		t.Run("dlock", func(t *testing.T) {
			fast, slow, waits := contenders(t, store.dlock)
			first, err := fast.Lock(t.Context())
			require.NoError(t, err)
			granted := lockInBackground(t, slow, waits)
			require.NoError(t, first.Unlock())
			next := make(chan *dlock.Lock, 1)
			go func() {
				lock, err := fast.Lock(t.Context())
				if err != nil {
					t.Error(err)
				}
				next <- lock
			}()
			second := <-granted // before the fast process gets the lock again
			require.NoError(t, second.Unlock())
			third := <-next
			require.Greater(t, third.Token(), second.Token())
			require.NoError(t, third.Unlock())
		})
	})
}

// TestTheTokenTakesThePlaceOfTheVersion refuses the late write of a holder that
// has lost the lock. A write without a token passes.
func TestTheTokenTakesThePlaceOfTheVersion(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, store sqlStore) {
		db := newItems(t, store)
		a, b := start(t, "A", store.dlock), start(t, "B", store.dlock)
		old := a.lock()
		a.kill() // the process is killed while its write is in flight
		next := b.lock()
		table := fence.Table{Dollar: true}
		store.connect(t, createFence)
		require.NoError(t, table.Add(t.Context(), db, "item/1"))
		write := func(value int, token int64) error {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			if err := table.Raise(t.Context(), tx, "item/1", token); err != nil {
				return err
			}
			_, err = tx.ExecContext(t.Context(), "UPDATE item SET value = $1 WHERE id = 1", value)
			return errors.Join(err, tx.Commit())
		}
		require.NoError(t, write(70, next))
		require.ErrorIs(t, write(100, old), fence.ErrStale)
		require.NoError(t, write(60, next), "one holder may write several times")
		require.Equal(t, 60, read(t, db, 1).value)
		require.True(t, changed(t, db, "UPDATE item SET value = $1 WHERE id = 1", 100))
	})
}
