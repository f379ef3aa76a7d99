package postgres

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

var lock = sqltest.Lock

func TestEachRequestIsOneTransactionAndOneRoundTrip(t *testing.T) {
	server := pgtest.Start(t, pgtest.WithConfig("autovacuum=off")) // so that only the test changes the database
	proxy := testenv.NewProxy(t, server.Addr(), pgtest.Protocol)
	s := testenv.Session(t, Driver{}, server.DSNAt(proxy.Addr(), "session_timeout=10m"))
	st := s.(*session.Session).Store()
	trips := func() int { return proxy.Counts()[pgtest.OpSync] + proxy.Counts()[pgtest.OpQuery] }
	// changes returns the number of transactions that have changed the database.
	changes := func() int {
		n, err := strconv.Atoi(server.SQL(t, "SELECT pg_snapshot_xmax(pg_current_snapshot())"))
		require.NoError(t, err)
		return n
	}
	const rounds = 5
	before, changed := 0, changes()
	for range rounds { // the first rounds open connections and prepare statements
		before = trips()
		made, err := st.Do(t.Context(), session.Change{Queue: "q", Prefix: "a-W-", Data: []byte("x")})
		require.NoError(t, err)
		_, err = st.Do(t.Context(), session.Change{Kind: session.Delete, Queue: "q", Place: made.Place, Cause: driver.Released})
		require.NoError(t, err)
	}
	assert.Equal(t, 2, trips()-before)
	assert.Equal(t, 2*rounds, changes()-changed)
}

// A session that knows the queue needs only a Create and a notice.
func TestAHandOverTakesNoRequestOfTheNextHolder(t *testing.T) {
	c := newCaseWith(t, "session_timeout=10m")
	holder, waiter := newSession(t, c), newSession(t, c)
	var mu sync.Mutex
	sent := make(map[string]int)
	waiter.Requests.Intercept(func(ctx context.Context, method string, send func(context.Context) error) error {
		mu.Lock()
		sent[method]++
		mu.Unlock()
		return send(ctx)
	})
	for range 2 {
		mu.Lock()
		clear(sent)
		mu.Unlock()
		held := mustCreate(t, holder, "held")
		first := func([]driver.Node) int { return 0 }
		j, err := waiter.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("waits"), Predecessor: first})
		require.NoError(t, err)
		require.NoError(t, holder.Delete(t.Context(), "q", held.Place, driver.Released))
		require.Equal(t, driver.Released, <-j.Watch.C)
		require.NoError(t, waiter.Delete(t.Context(), "q", j.Place, driver.Released))
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, map[string]int{"Create": 1, "Delete": 1}, sent)
}
