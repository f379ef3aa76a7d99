package postgres

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func begin(t *testing.T, c *caseStore, text string) *sql.Tx {
	t.Helper()
	tx, err := c.Admin.Begin()
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback() })
	_, err = tx.Exec(inSchema(text, c.schema))
	require.NoError(t, err)
	return tx
}

func TestLocksOfDeadSessionsWhileAnOperatorLocksRows(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"node":  "SELECT * FROM dlock.node WHERE queue = 'locked' FOR UPDATE",
		"queue": "SELECT * FROM dlock.queue WHERE name = 'locked' FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = 2 * time.Second
			c := newCaseWith(t, "session_timeout="+timeout.String())
			sqltest.LockedRows(t, sqltest.DeadSessions{
				Connector: c,
				Timeout:   timeout,
				CutOff:    func(s driver.Session) (heal func()) { return s.(*sqltest.Session).Network.Cut() },
				Lock: func() (free func()) {
					tx := begin(t, c, text)
					return func() { tx.Rollback() }
				},
				Session: func(s driver.Session) *session.Session { return s.(*sqltest.Session).Session },
			})
		})
	}
}

// newDeadSessions returns a store in which A7 expired before B7. Both have
// nodes in q.
func newDeadSessions(t *testing.T) *caseStore {
	t.Helper()
	c := newCaseWith(t, "session_timeout=1h")
	newSession(t, c) // creates the tables
	for _, text := range []string{
		"SELECT dlock.begin_session('A7', interval '0', NULL, true)", "SELECT dlock.begin_session('B7', interval '0')",
		"CALL dlock.append('A7', 1, 'a', 'a-W-', '1', NULL, NULL, NULL, NULL)", "CALL dlock.append('A7', 1, 'q', 'a-W-', '2', NULL, NULL, NULL, NULL)",
		"CALL dlock.append('B7', 1, 'q', 'a-W-', '3', NULL, NULL, NULL, NULL)",
	} {
		c.Exec(t, text)
	}
	return c
}

func (c *caseStore) expire(t *testing.T) (ended bool) {
	t.Helper()
	assert.NoError(t, c.Admin.QueryRow(inSchema("SELECT dlock.expire()", c.schema)).Scan(&ended))
	return ended
}

func (c *caseStore) owners(t *testing.T) string {
	t.Helper()
	return c.server.SQL(t, inSchema("SELECT string_agg(session, ' ' ORDER BY token) FROM dlock.node", c.schema))
}

// While an operator blocks the end of session A7, session B7 must end.
func TestDeadSessionWithALockedRowIsPassedOver(t *testing.T) {
	for _, text := range []string{
		"SELECT * FROM dlock.node WHERE queue = 'q' AND session = 'A7' FOR UPDATE",
		"SELECT * FROM dlock.node WHERE queue = 'q' AND session = 'A7' FOR KEY SHARE",
		"SELECT * FROM dlock.queue WHERE name = 'a' FOR UPDATE",
		"SELECT * FROM dlock.session WHERE id = 'A7' FOR SHARE",
		"DELETE FROM dlock.node WHERE queue = 'a'",
		"INSERT INTO dlock.node (queue, name, data) VALUES ('a', 'by-hand', '')",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			c := newDeadSessions(t)
			tx := begin(t, c, text)
			if first, second := c.expire(t), c.expire(t); !first || second {
				t.Errorf("the first call ends a session: %v, the second one: %v", first, second)
			}
			assert.Equal(t, "A7 A7", c.owners(t))
			require.NoError(t, tx.Rollback())
			if first, second := c.expire(t), c.expire(t); !first || second {
				t.Errorf("without the lock, the first call ends a session: %v, the second one: %v", first, second)
			}
			assert.Equal(t, "", c.owners(t))
		})
	}
}

// expire may time out on a slow machine, so the test repeats the call.
func TestDeadSessionInABusyQueueEnds(t *testing.T) {
	c := newDeadSessions(t)
	c.Exec(t, "SELECT dlock.end_session('B7')")
	waiting := inSchema("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%dlock.expire%'", c.schema)
	for range 10 {
		tx := begin(t, c, "SELECT dlock.lock_queue('q')")
		ended := make(chan bool, 1)
		go func() { ended <- c.expire(t) }()
		for len(ended) == 0 && c.server.SQL(t, waiting) == "0" {
		}
		tx.Rollback()
		if <-ended {
			return
		}
	}
	t.Error("the session does not end")
}

func TestDeleteNoticesThatTheSessionHasEnded(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	j := mustCreate(t, s, "1")
	c.Exec(t, "SELECT dlock.end_session($1)", s.ID())
	_, err := s.Store().Do(t.Context(), session.Change{Kind: session.Delete, Queue: "q", Place: j.Place, Cause: driver.Released})
	assert.ErrorIs(t, err, driver.ErrSessionEnded, "not gone, which Unlock might take for its own doing")
}
