package mysql

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// Reading the queue fails after the commit, so the session must remove the
// node.
func TestAppendWhoseListFailsLeavesNothing(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	s.Delete(t.Context(), "q", create(t, s, "q").Place, driver.Changed)
	st := s.Requests.Unwrap().(*store)
	st.config.Params["lock_wait_timeout"] = "1"
	st.Close() // the pool reopens with the new parameter
	rows, err := c.Admin.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer rows.Rollback()
	lockRows(t, rows, "SELECT * FROM dlock_node WHERE queue = 'q' FOR UPDATE") // also locks the gap, so the append waits
	created := make(chan error, 1)
	go func() {
		_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("y")})
		created <- err
	}()
	eventually(t, "the append does not wait", func() bool { return waits(t, c.server) == "1" })
	table, err := c.Admin.Conn(t.Context())
	require.NoError(t, err)
	defer table.Close()
	locked := make(chan error, 1)
	go func() {
		_, err := table.ExecContext(t.Context(), "LOCK TABLES dlock_node WRITE")
		locked <- err
	}()
	eventually(t, "the table is not wanted", func() bool {
		return c.server.SQL(t, "", "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock%'") == "1"
	})
	require.NoError(t, rows.Rollback())
	require.NoError(t, <-locked)
	err = <-created
	var n int
	if e := table.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM dlock_node").Scan(&n); e != nil || n != 1 {
		t.Fatalf("%d nodes, error %v: the append has not come to its end", n, e)
	}
	if !errors.Is(err, driver.ErrUnavailable) || number(err) != 1181 {
		t.Errorf("error %v", err)
	}
	_, err = table.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	eventually(t, "the node is still there", func() bool {
		nodes, err := s.List(t.Context(), "q")
		return err == nil && len(nodes) == 0
	})
}

func TestChangesThatWereGivenUpEndInTheServer(t *testing.T) {
	for name, texts := range map[string][2]string{
		"row":   {"BEGIN; SELECT * FROM dlock_queue WHERE name = 'q' FOR UPDATE", "ROLLBACK"},
		"table": {"LOCK TABLES dlock_node WRITE", "UNLOCK TABLES"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCaseWith(t, "session_timeout=8s")
			s := newSession(t, c)
			s.Delete(t.Context(), "q", create(t, s, "q").Place, driver.Changed)
			blocker, err := c.Admin.Conn(t.Context())
			require.NoError(t, err)
			defer blocker.Close()
			for text := range strings.SplitSeq(texts[0], "; ") {
				_, err := blocker.ExecContext(t.Context(), text)
				require.NoError(t, err)
			}
			_, err = s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("y")})
			require.ErrorIs(t, err, driver.ErrUnavailable)
			// The process list shows the statement inside a running procedure.
			appends := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '" + c.database +
				"' AND (info LIKE 'UPDATE dlock_queue%' OR info LIKE 'INSERT INTO dlock_node%')"
			began := time.Now()
			eventually(t, "the server keeps the append", func() bool { return c.server.SQL(t, "", appends) == "0" })
			if waited := time.Since(began); waited > 20*time.Second {
				t.Errorf("the server keeps the append %v longer than the session", waited)
			}
			_, err = blocker.ExecContext(t.Context(), texts[1])
			assert.NoError(t, err)
		})
	}
}
