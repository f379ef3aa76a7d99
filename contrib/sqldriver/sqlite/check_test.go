package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
)

func checked(t *testing.T, dsn string) doctortest.Findings {
	t.Helper()
	return doctortest.Check(t, Driver{}, dsn)
}

func TestCheckOfAHealthyFile(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	checked(t, path).Healthy(t)
	db := otherProgram(t, path)
	var rows int
	require.NoError(t, db.QueryRow("SELECT (SELECT count(*) FROM dlock_node) + (SELECT count(*) FROM dlock_session)").Scan(&rows))
	require.Zero(t, rows)
	c, err := NewConnector(db, 0)
	require.NoError(t, err)
	doctortest.Run(t, c).Healthy(t)

	require.NoError(t, os.Chmod(path, 0o666))
	checked(t, path).Has(t, driver.Warning, "every user of this machine", "chmod o-w")
	operate(t, path, "UPDATE dlock_store SET last = ?1, reserved = ?1", int64(99e16))
	checked(t, path).Has(t, driver.Warning, "of 999999999999999999", "another file")
}

func TestCheckOfFilesThatCannotBeUsed(t *testing.T) {
	dir := directory(t)
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, fmt.Appendf(nil, "%5000s", "no database"), 0o600))
	checked(t, text).Has(t, driver.Problem, "no SQLite database", "another file")
	checked(t, dir).Has(t, driver.Problem, "is a directory", "another file")
	checked(t, filepath.Join(dir, "missing", "locks.db")).Has(t, driver.Problem, "does not exist", "another file")
}

func TestCheckOfAFileThatAnotherProgramHasLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(directory(t), "locks.db")
	checked(t, path).Healthy(t)
	db := otherProgram(t, path)
	db.SetMaxOpenConns(1)
	_, err := db.Exec("BEGIN IMMEDIATE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // the check tries again until then
	defer cancel()
	found, err := newStoreAt(t, path, time.Second).Check(ctx)
	require.NoError(t, err)
	doctortest.Findings(found).Has(t, driver.Problem, "", "write transaction")
}

// The error must say that the database is locked, even if ctx ends.
func TestTheErrorOfALockedDatabaseSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := explain(retry(ctx, longestPause, func() error {
		if calls++; calls == 1 {
			return failure(codeBusy)
		}
		cancel()
		return ctx.Err()
	}))
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, adviceOn(err), "write transaction")
}

func TestCheckOfErrors(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("%w: x is on a file system (NFS) that other machines may share", errPermanent): "local disk",
		explain(failure(codeReadOnly)): "let this user write",
		explain(failure(codeFull)):     "free the disk",
		explain(failure(codeCorrupt)):  "end all programs that use it",
	} {
		require.Contains(t, adviceOn(connectError(err)), want)
	}
}

func TestCheckOfAFullDisk(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	doctortest.Findings(checkFile(path, 1000, true)).Has(t, driver.Warning, "1000 bytes left", "free the disk")
	require.Equal(t, driver.OK, checkFile(path, 0, false)[0].Level)
	doctortest.Findings(checkFile(path+"x", 0, false)).Has(t, driver.Unknown, "no such file", "")
}
