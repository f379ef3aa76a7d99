package postgres

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func role(t *testing.T, server *pgtest.Server, schema string, settings []string, params ...string) string {
	t.Helper()
	user := server.Schema() + "_role"
	server.SQL(t, "CREATE ROLE "+user+" SUPERUSER LOGIN PASSWORD 'correct-horse'")
	for _, s := range settings {
		server.SQL(t, "ALTER ROLE "+user+" SET "+s)
	}
	return strings.Replace(server.DSN(append(params, "schema="+schema)...), "dlock:", user+":", 1)
}

// If the server read names as Latin 1, the users would have different queues.
func TestNamesDoNotDependOnTheEncodingOfTheUser(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	latin := role(t, server, schema, []string{"client_encoding = 'LATIN1'"})
	first := testenv.Session(t, Driver{}, server.DSN("schema="+schema))
	second := testenv.Session(t, Driver{}, latin)
	const queue = "Bestände/ü"
	for i, s := range []driver.Session{first, second} {
		j, err := s.Create(t.Context(), queue, driver.NodeSpec{Prefix: "ä-W-", Data: []byte{byte(i)}})
		require.NoError(t, err)
		if len(j.Ahead) != i {
			t.Errorf("session %d: %d nodes are ahead", i, len(j.Ahead))
		}
	}

	u, err := url.Parse(latin)
	require.NoError(t, err)
	u.RawQuery = "sslmode=disable"
	db, err := sql.Open("pgx", u.String())
	require.NoError(t, err)
	defer db.Close()
	c, err := NewConnector(db, Options{EmptyIsNew: true, Schema: schema})
	require.NoError(t, err)
	_, err = c.Connect(t.Context())
	assert.ErrorContains(t, err, "client_encoding LATIN1, and dlock needs UTF8")
}

// These settings make the server send values in unusual text formats.
func TestReadDoesNotDependOnTheFormatsOfTheUser(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := role(t, server, server.Schema(), []string{"bytea_output = 'escape'", "DateStyle = 'German'", "timezone = 'Asia/Kathmandu'"},
		"default_query_exec_mode=exec")
	s := testenv.Session(t, Driver{}, dsn)
	const data = "\x00\\x41\xff'"
	j, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte(data)})
	require.NoError(t, err)
	info, err := driver.Inspect(s).Read(t.Context(), "q", j.Name)
	if err != nil || string(info.Data) != data || time.Since(info.Created).Abs() > time.Minute {
		t.Errorf("%+v, error %v", info, err)
	}
}

func TestReadOnlyUserIsTold(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := role(t, server, server.Schema(), []string{"default_transaction_read_only = on"})
	unavailable(t, dsn, "default_transaction_read_only is on")
}

// The data source name lists the standby before the primary.
func TestSessionUsesThePrimaryOfSeveralServers(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	standby := primary.Standby(t)
	unavailable(t, standby.DSN("schema=s"), "server is in standby mode")

	both := func(first, second *pgtest.Server) string {
		return primary.DSNAt(first.Addr()+","+second.Addr(), "schema=s", "session_timeout=8s")
	}
	create := func(dsn, prefix string) (j driver.Joined) {
		t.Helper()
		eventually(t, func() bool {
			s, err := testenv.Connect(t, Driver{}, dsn)
			if err == nil {
				j, err = s.Create(t.Context(), "q", driver.NodeSpec{Prefix: prefix, Data: []byte(prefix)})
			}
			return err == nil
		})
		return j
	}
	old := create(both(standby, primary), "a-W-")
	position := primary.SQL(t, "SELECT pg_current_wal_lsn()")
	eventually(t, func() bool { return standby.SQL(t, "SELECT pg_last_wal_replay_lsn() >= '"+position+"'") == "t" })

	primary.Pause()
	defer primary.Resume()
	standby.Promote(t)
	assert.Greater(t, create(both(primary, standby), "b-W-").Token, old.Token)
}

func TestDeadSessionEndsWhileItsAppendWaits(t *testing.T) {
	c := newCaseWith(t, "session_timeout=3s")
	dead := newSession(t, c)
	create := func(queue, data string) (driver.Joined, error) {
		return dead.Create(t.Context(), queue, driver.NodeSpec{Prefix: "a-W-", Data: []byte(data)})
	}
	_, err := create("other", "1")
	require.NoError(t, err)
	j, err := create("locked", "2")
	if err == nil {
		err = dead.Delete(t.Context(), "locked", j.Place, driver.Changed)
	}
	require.NoError(t, err)
	begin(t, c, "SELECT * FROM dlock.queue WHERE name = 'locked' FOR UPDATE")
	appended := make(chan error, 1)
	go func() {
		_, err := create("locked", "3")
		appended <- err
	}()
	appends := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%\"" + c.schema + "\".append%'"
	eventually(t, func() bool { return c.server.SQL(t, appends) == "1" })
	defer dead.Network.Cut()()
	if err := <-appended; err == nil {
		t.Error("the append has succeeded")
	}
	next := newSession(t, c)
	empties(t, next, "other")
}
