package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, time.Minute, 10*time.Millisecond)
}

func empties(t *testing.T, s driver.Session, queue string) {
	t.Helper()
	eventually(t, func() bool {
		nodes, err := s.List(t.Context(), queue)
		return err == nil && len(nodes) == 0
	})
}

func create(t *testing.T, s driver.Session, data string) (driver.Joined, error) {
	return s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte(data)})
}

func mustCreate(t *testing.T, s driver.Session, data string) driver.Joined {
	t.Helper()
	j, err := create(t, s, data)
	require.NoError(t, err)
	return j
}

// Commits wait for a missing standby, which simulates a disk that takes
// forever.
func TestOthersDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	c := newCaseOn(t, server, "session_timeout=1h")
	first, second, third := newSession(t, c), newSession(t, c), newSession(t, c)
	j := mustCreate(t, first, "1")
	k := mustCreate(t, second, "2")
	w, err := second.Watch(t.Context(), "q", k.Place, j.Node)
	require.NoError(t, err)

	server.SQL(t, "ALTER SYSTEM SET synchronous_standby_names = 'missing'")
	server.SQL(t, "SELECT pg_reload_conf()")
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Admin.ExecContext(ctx, "SELECT pg_logical_emit_message(true, '', '')")
		return err != nil
	})
	waits := func(procedure string) func() bool {
		return func() bool {
			return server.SQL(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'CALL %"+procedure+"(%'") == "1"
		}
	}
	deleted, created := make(chan error, 1), make(chan error, 1)
	go func() { deleted <- first.Delete(t.Context(), "q", j.Place, driver.Released) }()
	eventually(t, func() bool { return len(w.C) == 1 })
	assert.Equal(t, driver.Released, <-w.C)
	eventually(t, waits("remove"))
	go func() {
		_, err := create(t, third, "3")
		created <- err
	}()
	eventually(t, waits("append"))
	nodes, err := second.List(t.Context(), "q")
	require.NoError(t, err)
	assert.Len(t, nodes, 2)
	assert.Empty(t, deleted)
	assert.Empty(t, created)

	server.SQL(t, "ALTER SYSTEM RESET synchronous_standby_names")
	server.SQL(t, "SELECT pg_reload_conf()")
	require.NoError(t, <-deleted)
	require.NoError(t, <-created)
}

func TestAnErrorAfterTheCommitLeavesNothing(t *testing.T) {
	for name, flush := range map[string]string{
		"canceling statement due to statement timeout": "SELECT pg_sleep(60)::text",
		"permission denied for function pg_read_file":  "SELECT pg_read_file('PG_VERSION')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Shared(t)
			c := newCaseOn(t, server, "session_timeout=1h", "options=-c%20statement_timeout%3D1s")
			admin := newSession(t, c)
			user := c.schema + "_plain"
			server.SQL(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'correct-horse'; "+grants(c.schema, user))
			s := testenv.Session(t, Driver{}, strings.Replace(server.DSN(c.params...), "dlock:", user+":", 1))
			mustCreate(t, admin, "1")
			c.Exec(t, "CREATE OR REPLACE FUNCTION dlock.flush() RETURNS text LANGUAGE sql AS $$"+flush+"$$")
			_, err := create(t, s, "2")
			require.ErrorContains(t, err, name)
			require.Eventually(t, func() bool {
				nodes, err := admin.List(t.Context(), "q")
				return err == nil && len(nodes) == 1
			}, time.Minute, 10*time.Millisecond)
		})
	}
}

func TestNoVersionRecursAfterACrash(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	c := newCaseOn(t, server, "session_timeout=1h")
	s := newSession(t, c)
	mustCreate(t, s, "1")
	look := func(known int64) (version int64, same bool) {
		found, err := s.Store().Look(t.Context(), []session.Query{{Queue: "q", Known: known}})
		require.NoError(t, err)
		return found[0].Version, found[0].Same
	}
	before, _ := look(0)
	_, same := look(before)
	require.True(t, same)
	server.Kill()
	server.Restart()
	eventually(t, func() bool { _, err := s.List(t.Context(), "q"); return err == nil })
	_, same = look(before)
	assert.False(t, same)
}
