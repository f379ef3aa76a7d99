package mysql

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

var lock = sqltest.Lock

// counted is a session behind a proxy that counts its round trips.
type counted struct {
	*session.Session
	server   *mysqltest.Server
	database string
	proxy    *testenv.Proxy
}

func newCounted(t *testing.T, server *mysqltest.Server) *counted {
	c := &counted{server: server, database: server.Database(), proxy: testenv.NewProxy(t, server.Addr(), mysqltest.Protocol)}
	s := testenv.Session(t, Driver{}, server.DSNAt(c.proxy.Addr(), c.database, "session_timeout=1h"))
	c.Session = s.(*session.Session)
	return c
}

func (c *counted) roundTrips() int {
	n := 0
	for op, count := range c.proxy.Counts() {
		if op != mysqltest.OpOther && op != mysqltest.OpQuit {
			n += count
		}
	}
	return n
}

func (c *counted) commits(t *testing.T) int {
	t.Helper()
	text := c.server.SQL(t, "", "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Binlog_commits'")
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func TestEachRequestIsOneTransactionAndOneRoundTrip(t *testing.T) {
	c := newCounted(t, mysqltest.Start(t, mysqltest.WithConfig("log_bin=binlog", "sync_binlog=1")))
	st := c.Store()
	const rounds = 5
	before, commits := 0, c.commits(t)
	for range rounds { // the first rounds open connections
		before = c.roundTrips()
		made, err := st.Do(t.Context(), session.Change{Queue: "q", Prefix: "a-W-", Data: []byte("x")})
		require.NoError(t, err)
		_, err = st.Look(t.Context(), []session.Query{{Queue: "q"}})
		require.NoError(t, err)
		_, err = st.Do(t.Context(), session.Change{Kind: session.Delete, Queue: "q", Place: made.Place, Cause: driver.Released})
		require.NoError(t, err)
	}
	assert.Equal(t, 3, c.roundTrips()-before)
	assert.Equal(t, 2*rounds, c.commits(t)-commits, "a look changes nothing")
}
