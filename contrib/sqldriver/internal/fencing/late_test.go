package fencing

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
)

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

func (db database) withdraw(ctx context.Context, tx *sql.Tx, token int64) error {
	if err := db.table.Raise(ctx, tx, "account/7", token); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 10 WHERE id = 7")
	return err
}

func (db database) write(t *testing.T, token int64) error {
	return db.once(t.Context(), func(tx *sql.Tx) error { return db.withdraw(t.Context(), tx, token) })
}

// lateAfterRead writes late, in a transaction that read the token before the
// new holder wrote.
func (db database) lateAfterRead(t *testing.T) string {
	tx := db.begin(t)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT token FROM dlock_fence").Scan(new(int64)))
	err := db.write(t, newToken)
	if toRepeat(err) {
		return waits
	}
	require.NoError(t, err)
	return outcome(t, errors.Join(db.withdraw(t.Context(), tx, oldToken), tx.Commit()))
}

func (db database) secondWrite(t *testing.T) string {
	require.NoError(t, db.write(t, oldToken))
	return outcome(t, db.write(t, oldToken))
}

// A holder's second write must be accepted, unlike an old holder's late write.
func lateAndSecondWrite(t *testing.T, db database) {
	late := map[string]string{
		"PostgreSQL, Read Committed":  stale,
		"PostgreSQL, Repeatable Read": repeat,
		"PostgreSQL, Serializable":    repeat,
		"MariaDB, Read Committed":     stale,
		"MariaDB, Repeatable Read":    stale,
		"MariaDB, Serializable":       waits,
		"SQLite, begin deferred":      repeat,
		"SQLite, begin immediate":     waits,
	}
	assert.Equal(t, late[db.name], db.lateAfterRead(t))
	db.reset(t)
	assert.Equal(t, wrote, db.secondWrite(t))
}
