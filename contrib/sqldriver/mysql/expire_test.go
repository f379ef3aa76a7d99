package mysql

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func begin(t *testing.T, c *caseStore, text string) *sql.Tx {
	t.Helper()
	tx, err := c.Admin.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback() })
	lockRows(t, tx, text)
	return tx
}

func TestLocksOfDeadSessionsWhileAnOperatorLocksRows(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	c := newCaseWith(t, "session_timeout="+timeout.String())
	sqltest.LockedRows(t, sqltest.DeadSessions{
		Connector: c,
		Timeout:   timeout,
		CutOff:    func(s driver.Session) (heal func()) { return s.(*sqltest.Session).Network.Cut() },
		Lock: func() (free func()) {
			tx := begin(t, c, "SELECT * FROM dlock_node WHERE queue = 'locked' FOR UPDATE")
			return func() { tx.Rollback() }
		},
		Session: func(s driver.Session) *session.Session { return s.(*sqltest.Session).Session },
	})
}

// While an operator blocks the end of session A7, session B7 must end.
func TestDeadSessionWithALockedRowIsPassedOver(t *testing.T) {
	for _, text := range []string{
		"SELECT * FROM dlock_node WHERE queue = 'q' AND session = 'A7' FOR UPDATE",
		"SELECT * FROM dlock_node WHERE queue = 'a' LOCK IN SHARE MODE",
		"SELECT * FROM dlock_session WHERE id = 'A7' LOCK IN SHARE MODE",
		"SELECT * FROM dlock_lease WHERE session = 'A7' FOR UPDATE",
		"DELETE FROM dlock_node WHERE queue = 'a'",
		"UPDATE dlock_node SET session = NULL WHERE queue = 'a'",
	} {
		t.Run(text, func(t *testing.T) {
			c := newCaseWith(t, "session_timeout=1h")
			newSession(t, c) // creates the tables
			for _, id := range []string{"A7", "B7"} {
				c.Exec(t, callText(c.database, "dlock_begin", []any{id, int64(0), int64(0), true, int64(0)}))
			}
			for i, node := range [][2]string{{"A7", "a"}, {"A7", "q"}, {"B7", "q"}} {
				c.Exec(t, callText(c.database, "dlock_append", []any{node[0], int64(1), node[1], "a-W-", []byte{byte(i)}}))
			}
			patient := openDB(t, c.server, c.database, "innodb_lock_wait_timeout=3600")
			want := func(first, second, owners string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				for _, status := range []string{first, second} {
					var got string
					if err := patient.QueryRowContext(ctx, "CALL dlock_expire()").Scan(&got); err != nil || got != status {
						t.Fatalf("status %q, want %q, error %v", got, status, err)
					}
				}
				if got := c.server.SQL(t, c.database, "SELECT GROUP_CONCAT(session ORDER BY queue) FROM dlock_node"); got != owners {
					t.Errorf("nodes of %q are left, want %q", got, owners)
				}
			}
			tx := begin(t, c, text)
			want("ok", "none", "A7,A7")
			require.NoError(t, tx.Rollback())
			want("ok", "none", "NULL")
		})
	}
}
