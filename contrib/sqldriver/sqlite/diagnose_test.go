package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
)

func diagnosed(t *testing.T, dsn string) doctortest.Findings {
	t.Helper()
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	return doctortest.Run(t, c)
}

func TestDiagnoseOfAHealthyFile(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	found := diagnosed(t, path)
	found.Healthy(t)
	found.Has(t, driver.CheckResolve, driver.OK, "the file "+path, "")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	var rows int
	require.NoError(t, db.QueryRow("SELECT (SELECT count(*) FROM dlock_node) + (SELECT count(*) FROM dlock_session)").Scan(&rows))
	require.Zero(t, rows)
	c, err := NewConnector(db, 0)
	require.NoError(t, err)
	doctortest.Run(t, c).Healthy(t)

	diagnosed(t, path+"?session_timeout=1s").Has(t, driver.CheckTimeout, driver.Warning, "1s", "10s")
	require.NoError(t, os.Chmod(path, 0o666))
	diagnosed(t, path).Has(t, driver.CheckSettings, driver.Warning, "every user of this machine", "chmod o-w")
	operate(t, path, "UPDATE dlock_store SET last = ?1, reserved = ?1", int64(99e16))
	diagnosed(t, path).Has(t, driver.CheckSequences, driver.Warning, "of 999999999999999999", "another file")
}

func TestDiagnoseOfFilesThatCannotBeUsed(t *testing.T) {
	dir := directory(t)
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, fmt.Appendf(nil, "%5000s", "no database"), 0o600))
	diagnosed(t, text).Ends(t, driver.CheckLogin, "no SQLite database", "another file")
	diagnosed(t, dir).Ends(t, driver.CheckLogin, "is a directory", "another file")
	diagnosed(t, filepath.Join(dir, "missing", "locks.db")).Ends(t, driver.CheckLogin, "does not exist", "another file")
}

func TestDiagnoseOfAFileThatAnotherProgramHasLocked(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	diagnosed(t, path).Healthy(t)
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	_, err = db.Exec("BEGIN IMMEDIATE")
	require.NoError(t, err)
	diagnosed(t, path+"?session_timeout=1s").Ends(t, driver.CheckLogin, "", "write transaction")
}

// ctx may end during a call that would find the database locked again.
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
	check, advice := explainDiagnosis(err)
	require.Equal(t, driver.CheckLogin, check, "%v", err)
	require.Contains(t, advice, "write transaction")
}

func TestDiagnoseOfErrors(t *testing.T) {
	for text, want := range map[error]driver.Check{
		fmt.Errorf("%w: x is on a file system (NFS) that other machines may share", errPermanent): driver.CheckSettings,
		explain(failure(codeReadOnly)): driver.CheckRights,
		explain(failure(codeFull)):     driver.CheckSettings,
	} {
		check, advice := explainDiagnosis(connectError(text))
		require.Equal(t, want, check, "%v", text)
		require.NotEmpty(t, advice)
	}
}

func TestDiagnoseOfAFullDisk(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	doctortest.Findings(inspectFile(path, 1000, true)).Has(t, driver.CheckSettings, driver.Warning, "1000 bytes left", "free the disk")
	require.Equal(t, driver.OK, inspectFile(path, 0, false)[0].Level)
	doctortest.Findings(inspectFile(path+"x", 0, false)).Has(t, driver.CheckSettings, driver.Unknown, "no such file", "")
}
