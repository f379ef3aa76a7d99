package fencing

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
)

// A program with a pgx pool passes stdlib.OpenDBFromPool(pool) as db.
func importAccounts(ctx context.Context, db *sql.DB, tokens fence.Table, token int64, accounts [][]any) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no-op after Commit
	if err := tokens.Raise(ctx, tx, "account/7", token); err != nil {
		return err
	}
	err = conn.Raw(func(c any) error { // in the same transaction
		_, err := c.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{"account"}, []string{"id", "balance"}, pgx.CopyFromRows(accounts))
		return err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

func ownCallsOfPgx(t *testing.T, db database) {
	db.reset(t)
	count := func() (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM account").Scan(&n))
		return n
	}
	put := func(token int64, accounts ...[]any) error {
		return importAccounts(t.Context(), db.DB, db.table, token, accounts)
	}
	require.NoError(t, put(newToken, []any{int64(8), int64(0)}))
	assert.Equal(t, 2, count())
	assert.ErrorIs(t, put(oldToken, []any{int64(9), int64(0)}), fence.ErrStale)
	assert.ErrorContains(t, put(newToken+1, []any{int64(10), int64(0)}, []any{int64(8), int64(0)}), "duplicate key")
	assert.Equal(t, 2, count())
	assert.NoError(t, db.write(t, newToken), "the COPY that failed was in the transaction of Raise")
}
