package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func newWaiters(t *testing.T, dsn string) *sqltest.Waiters {
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	return sqltest.NewWaiters(t, func(ctx context.Context) (*session.Session, *sqltest.Requests, error) {
		return connectIntercepted(ctx, c.(*connector))
	})
}

func TestAWaiterOnALaneNeedsNoNotice(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.DSN("schema="+server.Schema(), "session_timeout=1h")
	sqltest.NoPolls(t, newWaiters(t, dsn), newWaiters(t, dsn))
}

// Each notice wakes all listeners of the database, so the store must not send a
// notice that nobody needs.
func TestARemovalSendsANoticeOnlyToThoseWhoListen(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	listener, err := c.admin.Conn(t.Context())
	require.NoError(t, err)
	defer listener.Close()
	exec := func(text string) {
		t.Helper()
		_, err := listener.ExecContext(t.Context(), inSchema(text, c.schema))
		require.NoError(t, err)
	}
	channel := c.server.SQL(t, inSchema("SELECT dlock.channel('q')", c.schema))
	first := func() (payload string) {
		t.Helper()
		j, err := create(t, s, "1")
		require.NoError(t, err)
		k, err := create(t, s, "2")
		require.NoError(t, err)
		require.NoError(t, s.Delete(t.Context(), "q", j.Place, driver.Released))
		require.NoError(t, s.Delete(t.Context(), "q", k.Place, driver.Released))
		c.server.SQL(t, "NOTIFY "+channel+", 'done'")
		require.NoError(t, listener.Raw(func(conn any) error {
			n, err := conn.(*stdlib.Conn).Conn().WaitForNotification(t.Context())
			payload = n.Payload
			return err
		}))
		return payload
	}
	exec("LISTEN " + channel)
	assert.Equal(t, "done", first())
	exec("SELECT pg_advisory_lock_shared(dlock.listening('" + channel + "'))")
	assert.Contains(t, first(), "r\n")
	_ = listener.Raw(func(any) error { return sqldriver.ErrBadConn }) // closes the connection and ends its subscription
}

func TestAWaiterPollsAfterTheLaneAheadWasLost(t *testing.T) {
	server := pgtest.Shared(t)
	schema := "schema=" + server.Schema()
	proxy := testenv.NewProxy(t, server.Addr(), nil)
	sqltest.PollsWithoutLane(t,
		newWaiters(t, server.DSNAt(proxy.Addr(), schema, "session_timeout=1h")),
		newWaiters(t, server.DSN(schema, "session_timeout=1h", "notify=false")), proxy.DropConnections)
}

// If a contender gives up, its wait in the server must end at once. Otherwise
// the next contender waits behind it until that wait times out.
func TestAWaiterThatGivesUpLeavesNoWaitInTheServer(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	l := newWaiters(t, c.server.DSN(c.params...))
	held := l.Lock()
	var text string
	require.NoError(t, c.admin.QueryRow("SELECT pg_get_functiondef('"+c.schema+".await'::regproc)").Scan(&text))
	require.Contains(t, text, "900ms")
	c.exec(t, strings.Replace(text, "900ms", "1h", 1))
	ctx, cancel := context.WithCancel(t.Context())
	first := l.Wait(ctx)
	waiting := func(n string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return c.server.SQL(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '%"+c.schema+".await%'") == n
		}, time.Minute, time.Millisecond)
	}
	waiting("1")
	next := l.Wait(t.Context())
	waiting("2")
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	waiting("1")
	require.NoError(t, held.Unlock())
	sqltest.Soon(t, next)
}

func TestAWaiterOnALaneNoticesTheRemovalOfItsNode(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	l := newWaiters(t, c.server.DSN(c.params...))
	held := l.Lock()
	waits := l.Wait(t.Context())
	l.Await("Await", 1)
	c.exec(t, "DELETE FROM dlock.node WHERE token <> $1", held.Token())
	l.Await("Create", 3) // the waiter queues again
	require.NoError(t, held.Unlock())
	sqltest.Soon(t, waits)
}

func TestAHolderOnALaneNoticesTheRemovalOfItsNode(t *testing.T) {
	c := newCaseWith(t, "session_timeout=8s")
	l := newWaiters(t, c.server.DSN(c.params...))
	first := l.Lock()
	next := make(chan *dlock.Lock, 1)
	go func() { next <- l.Lock() }()
	l.Await("Await", 1)
	require.NoError(t, first.Unlock())
	held := <-next
	c.exec(t, "DELETE FROM dlock.node")
	select {
	case <-held.Lost():
	case <-time.After(time.Minute):
		t.Fatal("the holder does not notice that its node was removed")
	}
}

func TestLanesAreBounded(t *testing.T) {
	server := pgtest.Shared(t)
	sqltest.OneLane(t, newWaiters(t, server.DSN("schema="+server.Schema(), "session_timeout=1h", "lanes=1")))
}

var op = session.Op{Session: "A7", Generation: 1}

// newMoved returns a session's store, the tokens of its two nodes, and the lane
// of the second node. That lane seems to have moved to another server
// connection, as behind a proxy.
func newMoved(t *testing.T) (st *store, ahead, own int64, moved session.Lane) {
	server := pgtest.Shared(t)
	c, err := Driver{}.OpenConnector(server.DSN("schema="+server.Schema(), "session_timeout=1h"))
	require.NoError(t, err)
	st = newStore(c.(*connector))
	t.Cleanup(func() { st.Close() })
	require.NoError(t, st.Open(t.Context()))
	_, err = st.Begin(t.Context(), op.Session, time.Hour)
	require.NoError(t, err)
	create := func() (int64, session.Lane) {
		l := st.Lane(t.Context())
		token, _, ok, err := l.Create(t.Context(), op, "q", "a-W-", nil)
		require.NoError(t, err)
		require.True(t, ok)
		t.Cleanup(func() { l.Leave(session.ErrMoved) })
		return token, l
	}
	ahead, _ = create()
	own, moved = create()
	moved.(*lane).backend++
	return st, ahead, own, moved
}

func TestALaneNoticesThatAProxyHasMovedIt(t *testing.T) {
	_, ahead, own, moved := newMoved(t)
	_, _, err := moved.Await(t.Context(), op.Session, "q", own, ahead, nil)
	require.ErrorIs(t, err, session.ErrMoved)
}

func TestANodeIsRemovedAlthoughItsLaneHasMoved(t *testing.T) {
	st, _, own, moved := newMoved(t)
	require.ErrorIs(t, moved.Delete(t.Context(), op, "q", own, driver.Changed), session.ErrMoved)
	nodes, err := st.List(t.Context(), op.Session, "q")
	require.NoError(t, err)
	assert.Len(t, nodes, 1)
}

func TestLanesNeedConnectionsOfTheProgram(t *testing.T) {
	server := pgtest.Shared(t)
	schema := server.Schema()
	db, err := sql.Open("pgx", server.DSN())
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(session.MinConnections + 1)
	c, err := NewConnector(db, Options{Schema: schema, Lanes: 2, EmptyIsNew: true})
	require.NoError(t, err)
	_, err = c.Connect(t.Context())
	require.ErrorContains(t, err, "allows 4 connections, and a session needs 5")
	c, err = NewConnector(db, Options{Schema: schema, Lanes: 1, EmptyIsNew: true})
	require.NoError(t, err)
	client := dlock.NewClient(c)
	defer client.Close()
	require.NoError(t, lock(t, client.RWMutex("q")).Unlock())
	_, err = NewConnector(db, Options{Lanes: -1})
	require.ErrorContains(t, err, "Options.Lanes")
}
