package mysqltest

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDataSurvivesAKillAndARestart(t *testing.T) {
	s := Start(t)
	database := s.Database()
	s.SQL(t, database, "CREATE TABLE kept (n int) ENGINE=InnoDB; INSERT INTO kept VALUES (7)")
	s.Kill()
	_, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	require.Error(t, err)
	s.Restart()
	require.Equal(t, "7", s.SQL(t, database, "SELECT n FROM kept"))
}

func TestDatabasesAreNew(t *testing.T) {
	s := Shared(t)
	require.NotEqual(t, s.Database(), s.Database())
}

// A starting server removes all temporary tables in its directory for temporary
// files. If two servers shared that directory, one could remove the tables of
// the other while it starts.
func TestNoServerRemovesTheTemporaryTablesOfOthers(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	table := filepath.Join(dir, "#sql-temptable-1-1-1.MAI")
	require.NoError(t, os.WriteFile(table, nil, 0o600))
	Start(t)
	require.FileExists(t, table)
}

func TestPausedServerAnswersNothing(t *testing.T) {
	s := Start(t)
	s.Pause()
	conn, err := net.DialTimeout("tcp", s.Addr(), 10*time.Second)
	require.NoError(t, err, "the system accepts the connection")
	defer conn.Close()
	greeting := make([]byte, 1)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = conn.Read(greeting)
	require.Error(t, err)

	s.Resume()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = conn.Read(greeting)
	require.NoError(t, err)
}
