package sqltest

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// table runs the statements on fencing tokens in docs/use/guarantees.md, which
// use an example table.
type table struct {
	*testing.T
	db         *sql.DB
	statements []string
}

// fencing returns the SQL statements in docs/use/guarantees.md, without
// comments.
func fencing(t *testing.T) (statements []string) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "use", "guarantees.md"))
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "```sql\n")
	require.True(t, found)
	text, rest, _ := strings.Cut(text, "```")
	_, rest, found = strings.Cut(rest, "set the tokens back instead:")
	require.True(t, found)
	reset := strings.Split(rest, "`")[1]
	for line := range strings.Lines(text + reset) {
		if !strings.HasPrefix(line, "--") {
			statements = append(statements, line)
		}
	}
	return strings.SplitAfter(strings.Join(statements, ""), ";")
}

// statement returns the only statement of the page that starts with begins.
// replace holds pairs of words to replace and their replacements.
func (t table) statement(begins string, replace ...string) (found string) {
	t.Helper()
	for _, s := range t.statements {
		if s = strings.TrimSpace(s); strings.HasPrefix(s, begins) {
			require.Empty(t, found)
			found = s
		}
	}
	require.NotEmpty(t, found, begins)
	return strings.NewReplacer(replace...).Replace(found)
}

func (t table) changed(statement string) int64 {
	t.Helper()
	result, err := t.db.ExecContext(t.Context(), statement)
	require.NoError(t, err, statement)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	return n
}

func (t table) update(replace ...string) int64 {
	t.Helper()
	return t.changed(t.statement("UPDATE account SET balance", replace...))
}

func (t table) has(id string, epoch, token int64) {
	t.Helper()
	var e, n int64
	require.NoError(t, t.db.QueryRowContext(t.Context(), t.statement("SELECT", "= 7", "= "+id)).Scan(&e, &n))
	require.Equal(t, []int64{epoch, token}, []int64{e, n})
}

// Fencing runs the statements of docs/use/guarantees.md that compare fencing
// tokens. unchanged is the affected row count that the database reports for an
// UPDATE that changes no value.
func Fencing(t *testing.T, db *sql.DB, unchanged int64) {
	a := table{t, db, fencing(t)}
	a.changed("CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)")
	a.changed("INSERT INTO account (id, balance) VALUES (7, 100)")
	a.changed(a.statement("ALTER TABLE account ADD COLUMN epoch"))
	a.changed(a.statement("ALTER TABLE account ADD COLUMN token"))

	require.EqualValues(t, 1, a.update(), "the first write to a row that is older than its columns")
	require.EqualValues(t, 1, a.update("= 70", "= 60"), "a second write of the holder")
	require.Equal(t, unchanged, a.update("= 70", "= 60"))
	require.Zero(t, a.update("34", "33"), "an earlier holder")
	a.has("7", 0, 34)

	require.Zero(t, a.update("= 7\n", "= 8\n", "= 7 ", "= 8 "), "a row that is missing")
	require.ErrorIs(t, db.QueryRowContext(t.Context(), a.statement("SELECT", "= 7", "= 8")).Scan(new(int64), new(int64)), sql.ErrNoRows)
	insert := a.statement("INSERT", "(7,", "(8,")
	require.EqualValues(t, 1, a.changed(insert))
	_, err := db.ExecContext(t.Context(), insert)
	require.Error(t, err, "the row exists")
	require.Zero(t, a.update("= 7 ", "= 8 ", "34", "33"))
	a.has("8", 0, 34)

	a.changed("INSERT INTO account (id, balance) VALUES (9, 100)")
	require.EqualValues(t, 1, a.update("= 7 ", "= 9 "), "a row that was inserted without a token")

	const old = "1800000000000000"
	require.EqualValues(t, 1, a.update("34", old))
	require.Zero(t, a.update("34", "1"), "another store in the same epoch")
	require.EqualValues(t, 1, a.update("34", "1", "epoch = 0", "epoch = 1", "(0,", "(1,"))
	require.Zero(t, a.update("34", old), "a holder of the old store")
	a.has("7", 1, 1)
	require.Zero(t, a.update())
	require.EqualValues(t, 3, a.changed(a.statement("UPDATE account SET token")))
}
