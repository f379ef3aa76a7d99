package main

import (
	"context"
	"database/sql"
	_ "embed"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

//go:embed schema.sql
var schema string

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func withTables(t *testing.T) *sql.DB {
	t.Chdir(t.TempDir())
	db, err := sql.Open("sqlite", "shop.db")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	for statement := range strings.SplitSeq(strings.TrimSpace(schema), ";\n") {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	return db
}

func balance(t *testing.T, db *sql.DB) (n int) {
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 7").Scan(&n))
	return n
}

func TestTheProgram(t *testing.T) {
	db := withTables(t)
	main()
	assert.Equal(t, 90, balance(t, db))
	main()
	assert.Equal(t, 80, balance(t, db), "the row of the resource is there")
}

func TestALateWriteIsRefused(t *testing.T) {
	db := withTables(t)
	require.NoError(t, tokens.Add(t.Context(), db, account))
	write := func(token int64) error {
		tx, err := db.BeginTx(context.Background(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if err := withdraw(t.Context(), tx, token); err != nil {
			return err
		}
		return tx.Commit()
	}
	require.NoError(t, write(34))
	require.ErrorIs(t, write(33), fence.ErrStale)
	assert.Equal(t, 90, balance(t, db))
}
