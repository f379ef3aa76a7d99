package fencing

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/fence/fencetest"
)

// note is a text in a table, written by the tests of fencetest.
type note struct{ database }

func (n note) Write(ctx context.Context, token int64, value string, pause func()) error {
	return n.in(ctx, func(tx *sql.Tx) error {
		if err := n.table.Raise(ctx, tx, "account/7", token); err != nil {
			return err
		}
		pause()
		_, err := tx.ExecContext(ctx, "UPDATE note SET text = '"+value+"'")
		return err
	})
}

func (n note) Read(ctx context.Context, token int64) (value string, err error) {
	err = n.in(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT text FROM note").Scan(&value); err != nil {
			return err
		}
		return n.table.Check(ctx, tx, "account/7", token)
	})
	return value, err
}

// The tokens are in the database, so there is nothing to restart.
func (n note) Restart(context.Context) error { return nil }

func tablePassesTheKit(t *testing.T, db database) {
	for _, statement := range []string{
		"DROP TABLE IF EXISTS note", "CREATE TABLE note (text VARCHAR(20))", "INSERT INTO note (text) VALUES ('')",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	fencetest.Options{Wait: 50 * time.Millisecond}.Run(t, func(t *testing.T) fencetest.Resource {
		db.reset(t)
		return note{db}
	})
}

// The new holder must wait for the old holder's commit and see its result.
func newHolderWaits(t *testing.T, db database) {
	tx := db.begin(t)
	require.NoError(t, db.withdraw(t.Context(), tx, oldToken))
	var all sync.WaitGroup
	all.Go(func() {
		assert.NoError(t, db.in(t.Context(), func(tx *sql.Tx) error { return db.withdraw(t.Context(), tx, newToken) }))
	})
	require.NoError(t, tx.Commit())
	all.Wait()
	db.has(t, 80)
	assert.ErrorIs(t, db.write(t, oldToken), fence.ErrStale)
}

// The new holder must not use a snapshot from before the last commit.
func oldSnapshot(t *testing.T, db database) {
	require.NoError(t, db.write(t, oldToken))
	tx := db.begin(t)
	_, err := tx.ExecContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	if err := db.write(t, oldToken); err != nil {
		require.True(t, toRepeat(err), "%v", err)
		return // the transactions exclude each other
	}
	if err := db.table.Raise(t.Context(), tx, "account/7", newToken); err != nil {
		require.True(t, toRepeat(err), "%v", err)
		return
	}
	var balance int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 7").Scan(&balance))
	assert.Equal(t, 80, balance)
}

// A locking read sees what was committed after the transaction's snapshot.
func lockingRead(t *testing.T, db database) {
	locking := " FOR UPDATE"
	if strings.HasPrefix(db.name, "SQLite") {
		locking = ""
	}
	tx := db.begin(t)
	require.ErrorIs(t, tx.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 8").Scan(new(int)), sql.ErrNoRows)
	if err := db.write(t, newToken); err != nil {
		require.True(t, toRepeat(err), "%v", err)
		return // the transactions exclude each other
	}
	var balance int
	err := tx.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 7"+locking).Scan(&balance)
	if err == nil {
		err = db.table.Check(t.Context(), tx, "account/7", oldToken)
	}
	if !toRepeat(err) && balance == 90 {
		assert.ErrorIs(t, err, fence.ErrStale)
	}
}

// ineffective lists statements that make an UPDATE succeed without storing the
// new token.
var ineffective = map[string][]string{
	"PostgreSQL": {
		`CREATE OR REPLACE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER t BEFORE UPDATE ON % FOR EACH ROW EXECUTE FUNCTION skip()`,
		`CREATE OR REPLACE FUNCTION reset() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.token := OLD.token; RETURN NEW; END';
			CREATE TRIGGER t BEFORE UPDATE ON % FOR EACH ROW EXECUTE FUNCTION reset()`,
		"CREATE RULE r AS ON UPDATE TO % DO INSTEAD NOTHING",
		"ALTER TABLE % ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON % FOR SELECT USING (true)",
	},
	"MariaDB": {"CREATE TRIGGER t BEFORE UPDATE ON % FOR EACH ROW SET NEW.token = OLD.token"},
	"SQLite": {
		"CREATE TRIGGER t BEFORE UPDATE ON % BEGIN SELECT RAISE(IGNORE); END",
		"CREATE TRIGGER t AFTER UPDATE ON % BEGIN UPDATE % SET token = OLD.token; END",
	},
}

func nothingKept(t *testing.T, db database) {
	name, _, _ := strings.Cut(db.name, ",")
	create := printed(t)[0]
	for i, statement := range ineffective[name] {
		table := fence.Table{Name: fmt.Sprint("ineffective", i), Dollar: db.table.Dollar}
		do := func(statement string) {
			_, err := db.ExecContext(t.Context(), strings.ReplaceAll(statement, "%", table.Name))
			require.NoError(t, err)
		}
		do(strings.Replace(create, "dlock_fence", "%", 1))
		require.NoError(t, table.Add(t.Context(), db.DB, "account/7"))
		do(statement)
		tx := db.begin(t)
		if table.Dollar {
			do("GRANT SELECT, UPDATE ON % TO pg_monitor")
			_, err := tx.ExecContext(t.Context(), "SET LOCAL ROLE pg_monitor")
			require.NoError(t, err)
		}
		err := table.Raise(t.Context(), tx, "account/7", newToken)
		assert.ErrorIs(t, err, fence.ErrInvalid, statement)
		assert.ErrorContains(t, err, `token 34 of "account/7" was not kept`)
		require.NoError(t, tx.Rollback())
		do("DROP TABLE %")
	}
}

func rollback(t *testing.T, db database) {
	tx := db.begin(t)
	require.NoError(t, db.withdraw(t.Context(), tx, newToken))
	require.NoError(t, tx.Rollback())
	assert.NoError(t, db.write(t, oldToken), "nobody has written with the new token")
}

func epoch(t *testing.T, db database) {
	raise := func(epoch, token int64) error {
		table := db.table
		table.Epoch = epoch
		return db.in(t.Context(), func(tx *sql.Tx) error {
			return cmp.Or(table.Check(t.Context(), tx, "account/7", token), table.Raise(t.Context(), tx, "account/7", token))
		})
	}
	require.NoError(t, raise(0, 1_800_000_000_000_000))
	require.NoError(t, raise(2, 5))
	assert.ErrorIs(t, raise(2, 4), fence.ErrStale)
	err := raise(1, 1_800_000_000_000_000)
	assert.ErrorIs(t, err, fence.ErrStale)
	assert.ErrorContains(t, err, `"account/7" has seen epoch 2, which is greater than 1`)
	assert.NoError(t, raise(2, 6))
}

func rowOfAResource(t *testing.T, db database) {
	err := db.in(t.Context(), func(tx *sql.Tx) error { return db.table.Raise(t.Context(), tx, "account/8", newToken) })
	assert.ErrorIs(t, err, sql.ErrNoRows)
	assert.ErrorContains(t, err, `fence: "account/8" has no row (use Table.Add)`)

	require.NoError(t, db.write(t, newToken))
	require.NoError(t, db.table.Add(t.Context(), db.DB, "account/7"), "the row is there")
	assert.ErrorIs(t, db.write(t, oldToken), fence.ErrStale, "Add must not set the token back")
	assert.NoError(t, db.table.Add(t.Context(), db.DB, strings.Repeat("x", 512)))
	assert.NoError(t, db.table.Add(t.Context(), db.DB, "Account/7 "), "another resource")
}

func manyAdds(t *testing.T, db database) {
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			err := db.table.Add(t.Context(), db.DB, "account/8")
			for toRepeat(err) {
				err = db.table.Add(t.Context(), db.DB, "account/8")
			}
			assert.NoError(t, err)
		})
	}
	all.Wait()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM dlock_fence").Scan(&n))
	assert.Equal(t, 2, n)
}

// MariaDB's default collation would take two resources for one.
func columnIgnoresCase(t *testing.T, db database) {
	db.reset(t)
	_, err := db.ExecContext(t.Context(), "ALTER TABLE dlock_fence MODIFY resource VARCHAR(512)")
	require.NoError(t, err)
	err = db.table.Add(t.Context(), db.DB, "Account/7")
	assert.ErrorIs(t, err, fence.ErrInvalid)
	assert.ErrorContains(t, err, `the database takes resource "Account/7" for "account/7"`)
}

// The table must support transactions even if the default engine doesn't.
func printedEngine(t *testing.T, dsn string) {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), printed(t)[1])
	require.NoError(t, err)
	var engine string
	require.NoError(t, db.QueryRowContext(t.Context(),
		"SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'dlock_fence'").Scan(&engine))
	assert.Equal(t, "InnoDB", engine)
}

func majority(t *testing.T, db database) {
	for i := range 3 {
		require.NoError(t, db.table.Add(t.Context(), db.DB, fence.Part("pot", i)))
	}
	raise := func(tokens ...int64) error {
		return db.in(t.Context(), func(tx *sql.Tx) error { return db.table.RaiseAll(t.Context(), tx, "pot", tokens) })
	}
	require.NoError(t, raise(5, 900, 0))
	require.NoError(t, raise(5, 900, 0), "a second write")
	require.NoError(t, raise(0, 901, 3), "the maximum and the sum may fall")
	assert.ErrorIs(t, raise(5, 900, 0), fence.ErrStale, "901 is at the store that both have held")
	assert.NoError(t, raise(6, 0, 3))
}
