package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
)

// These statements are copied from the documentation.
const (
	showQueue = `SELECT seq, name, session FROM dlock_node WHERE queue = 'stock/42' ORDER BY seq`
	drawSeq   = `UPDATE dlock_store SET last = last + 1 WHERE last < reserved RETURNING last`
)

func documentation(t *testing.T) (text string) {
	for _, page := range []string{"contribute/other-languages.md", "stores/sqlite.md"} {
		b, err := os.ReadFile("../../../docs/" + page)
		require.NoError(t, err)
		text += string(b)
	}
	return text
}

func TestTheTablesHaveTheDocumentedColumns(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	connect(t, newStoreAt(t, path, time.Hour))
	db := otherProgram(t, path)
	for _, table := range []string{"dlock_store", "dlock_session", "dlock_node", "dlock_kept"} {
		_, list, found := strings.Cut(documentation(t), "\n"+table+" ")
		require.True(t, found, table)
		list, _, _ = strings.Cut(list, "\n")
		assert.Equal(t, strings.Split(strings.TrimSpace(list), ", "), rowsOf(t, db, "SELECT name FROM pragma_table_info('"+table+"')"), table)
	}
}

// otherProgram opens the database without dlock.
func otherProgram(t *testing.T, path string) *sql.DB {
	db, err := sql.Open("sqlite", fileURI(path)+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func rowsOf(t *testing.T, db *sql.DB, query string) (found []string) {
	rows, err := db.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values, scan := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			scan[i] = &values[i]
		}
		require.NoError(t, rows.Scan(scan...))
		found = append(found, strings.ReplaceAll(strings.TrimSuffix(fmt.Sprintln(values...), "\n"), " ", "|"))
	}
	require.NoError(t, rows.Err())
	return found
}

func TestAnotherProgramTakesPartByTheDocumentedStatements(t *testing.T) {
	doc := strings.Join(strings.Fields(documentation(t)), " ")
	require.Contains(t, doc, showQueue)
	require.Contains(t, doc, drawSeq)

	path := filepath.Join(directory(t), "locks.db")
	c, _ := client(t, path)
	mutex := c.RWMutex("stock/42")
	db := otherProgram(t, path)
	const id = "ANOTHERPROGRAMXXXXXXXXXXXX"
	change := func(statement string, args ...any) {
		t.Helper()
		result, err := db.ExecContext(t.Context(), statement, args...)
		require.NoError(t, err)
		n, err := result.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, statement)
	}
	inAnHour := func() int64 { return time.Now().Add(time.Hour).UnixMicro() }
	change("INSERT INTO dlock_session (id, deadline) VALUES (?, ?)", id, inAnHour())
	create := func() (seq int64, name string) {
		t.Helper()
		require.NoError(t, db.QueryRowContext(t.Context(), drawSeq).Scan(&seq))
		name = driver.FormatName("sh-W-", seq)
		change("INSERT INTO dlock_node (queue, seq, name, session) SELECT 'stock/42', ?, ?, id FROM dlock_session WHERE id = ?", seq, name, id)
		return seq, name
	}

	held, err := mutex.Lock(t.Context())
	require.NoError(t, err)
	seq, name := create()
	require.Greater(t, seq, held.Token())
	shown := rowsOf(t, db, showQueue)
	require.Len(t, shown, 2)
	require.True(t, strings.HasPrefix(shown[0], fmt.Sprintf("%d|%s|", held.Token(), held.Node())), shown[0])
	own := fmt.Sprintf("%d|%s|%s", seq, name, id)
	require.Equal(t, own, shown[1])
	require.NoError(t, held.Unlock())
	require.Equal(t, []string{own}, rowsOf(t, db, showQueue), "the other program holds the lock")
	change("UPDATE dlock_session SET deadline = ? WHERE id = ?", inAnHour(), id)

	_, err = mutex.TryLock(t.Context())
	require.ErrorIs(t, err, dlock.ErrLocked)
	granted := testenv.LockLater(t, mutex)
	require.Eventually(t, func() bool { return len(rowsOf(t, db, showQueue)) == 2 }, time.Minute, time.Millisecond)
	require.Empty(t, granted)
	_, err = db.ExecContext(t.Context(), fmt.Sprintf("BEGIN IMMEDIATE; DELETE FROM dlock_node WHERE queue = 'stock/42' AND seq = %d AND session = '%s'; "+
		"UPDATE dlock_store SET released = 'stock/42/%s'; COMMIT", seq, id, name))
	require.NoError(t, err)
	next, _ := testenv.Receive(t, granted, "the client sees the release")
	require.Greater(t, next.Token(), seq)

	// Deleting the session's row must remove the session's nodes.
	create()
	change("DELETE FROM dlock_session WHERE id = ?", id)
	require.Len(t, rowsOf(t, db, showQueue), 1)
	require.NoError(t, next.Unlock())
}

// The other program has no lock file, so only the deadline ends its session.
func TestAWaiterWithALongTimeoutSeesShortSessionsEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(directory(t), "locks.db")
	c, _ := client(t, path)
	db := otherProgram(t, path)
	const id = "STOPPEDPROGRAMXXXXXXXXXXXX"
	for _, statement := range []string{
		fmt.Sprintf("INSERT INTO dlock_session (id, deadline) VALUES ('%s', %d)", id, time.Now().Add(time.Second).UnixMicro()),
		fmt.Sprintf("INSERT INTO dlock_node (queue, seq, name, session) VALUES ('q', 0, 'sh-W-0000000000', '%s')", id),
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	_, err := c.RWMutex("q").TryLock(t.Context())
	require.ErrorIs(t, err, dlock.ErrLocked)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := c.RWMutex("q").Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
}
