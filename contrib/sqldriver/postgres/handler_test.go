package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// The program's OnNotification hook swallows all notices, so the session must
// fall back to polling.
func TestDatabaseWhoseNoticesTheProgramReceives(t *testing.T) {
	server := pgtest.Shared(t)
	config, err := pgx.ParseConfig(server.DSN())
	require.NoError(t, err)
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	c, err := NewConnector(db, Options{EmptyIsNew: true, Schema: server.Schema(), SessionTimeout: time.Hour})
	require.NoError(t, err)
	var joined []driver.Joined
	var sessions []driver.Session
	for _, data := range []string{"1", "2"} {
		s, err := c.Connect(t.Context())
		require.NoError(t, err)
		defer s.Close()
		j, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte(data)})
		require.NoError(t, err)
		sessions, joined = append(sessions, s), append(joined, j)
	}
	w, err := sessions[1].Watch(t.Context(), "q", joined[1].Place, joined[0].Node)
	require.NoError(t, err)
	defer w.Stop()
	require.NoError(t, sessions[0].Delete(t.Context(), "q", joined[0].Place, driver.Released))
	testenv.Receive(t, w.C, "the watch ends")
}
