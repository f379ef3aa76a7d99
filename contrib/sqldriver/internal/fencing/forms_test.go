package fencing

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
)

// A form is a way to compare tokens in a transaction.
type form func(ctx context.Context, db database, tx *sql.Tx, token int64) error

func raise(ctx context.Context, db database, tx *sql.Tx, token int64) error {
	return db.table.Raise(ctx, tx, "account/7", token)
}

func selectAfter(ctx context.Context, db database, tx *sql.Tx, token int64) error {
	update := db.placeholders("UPDATE dlock_fence SET token = CASE WHEN token < ? THEN ? ELSE token END WHERE resource = 'account/7'")
	if _, err := tx.ExecContext(ctx, update, token, token); err != nil {
		return err
	}
	var kept int64
	if err := tx.QueryRowContext(ctx, "SELECT token FROM dlock_fence WHERE resource = 'account/7'").Scan(&kept); err != nil || kept <= token {
		return err
	}
	return fence.ErrStale
}

func countRows(ctx context.Context, db database, tx *sql.Tx, token int64) error {
	update := db.placeholders("UPDATE dlock_fence SET token = ? WHERE resource = 'account/7' AND token <= ?")
	result, err := tx.ExecContext(ctx, update, token, token)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n == 1 || err != nil {
		return err
	}
	return fence.ErrStale
}

func (db database) placeholders(statement string) string {
	if !db.table.Dollar {
		return statement
	}
	return strings.Replace(strings.Replace(statement, "?", "$1", 1), "?", "$2", 1)
}

const (
	oldToken, newToken = 33, 34

	stale  = "stale"
	repeat = "to repeat"
	wrote  = "writes"
	waits  = "the new holder waits"
)

func outcome(t *testing.T, err error) string {
	t.Helper()
	switch {
	case errors.Is(err, fence.ErrStale):
		return stale
	case toRepeat(err):
		return repeat
	}
	require.NoError(t, err)
	return wrote
}

// withdraw checks the token and, if it is accepted, changes the account.
func (f form) withdraw(ctx context.Context, db database, tx *sql.Tx, token int64) error {
	if err := f(ctx, db, tx, token); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 10 WHERE id = 7")
	return err
}

func (f form) write(t *testing.T, db database, token int64) error {
	return db.once(t.Context(), func(tx *sql.Tx) error { return f.withdraw(t.Context(), db, tx, token) })
}

// lateAfterRead returns the outcome of an old holder's late write. The old
// holder's transaction has read the token before the new holder writes.
func (f form) lateAfterRead(t *testing.T, db database) string {
	tx := db.begin(t)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT token FROM dlock_fence").Scan(new(int64)))
	err := f.write(t, db, newToken)
	if toRepeat(err) {
		return waits
	}
	require.NoError(t, err)
	return outcome(t, errors.Join(f.withdraw(t.Context(), db, tx, oldToken), tx.Commit()))
}

// secondWrite returns the outcome of a holder's second write with the same
// token.
func (f form) secondWrite(t *testing.T, db database) string {
	require.NoError(t, f.write(t, db, oldToken))
	return outcome(t, f.write(t, db, oldToken))
}

// Only raise, which calls [fence.Table.Raise], refuses an old holder's late
// write and accepts a holder's second write on every database.
func formsOfTheComparison(t *testing.T, db database) {
	forms := []form{raise, selectAfter, countRows}
	late := map[string][3]string{
		"PostgreSQL, Read Committed":  {stale, stale, stale},
		"PostgreSQL, Repeatable Read": {repeat, repeat, repeat},
		"PostgreSQL, Serializable":    {repeat, repeat, repeat},
		"MariaDB, Read Committed":     {stale, stale, stale},
		"MariaDB, Repeatable Read":    {stale, wrote, stale},
		"MariaDB, Serializable":       {waits, waits, waits},
		"SQLite, begin deferred":      {repeat, repeat, repeat},
		"SQLite, begin immediate":     {waits, waits, waits},
	}
	second := [3]string{wrote, wrote, wrote}
	if strings.HasPrefix(db.name, "MariaDB") {
		second[2] = stale
	}
	var sawLate, sawSecond [3]string
	for i, f := range forms {
		sawLate[i] = f.lateAfterRead(t, db)
		db.reset(t)
		sawSecond[i] = f.secondWrite(t, db)
		db.reset(t)
	}
	assert.Equal(t, late[db.name], sawLate)
	assert.Equal(t, second, sawSecond)
}
