package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// lanes is a connector that counts the requests of all its sessions.
type lanes struct {
	t     *testing.T
	inner *connector

	mu   sync.Mutex
	sent map[string]int // by method
}

func newLanes(t *testing.T, dsn string) *lanes {
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	return &lanes{t: t, inner: c.(*connector), sent: make(map[string]int)}
}

func (l *lanes) Connect(ctx context.Context) (driver.Session, error) {
	s, requests, err := connectIntercepted(ctx, l.inner)
	if err != nil {
		return nil, err
	}
	requests.Intercept(func(ctx context.Context, method string, send func(context.Context) error) error {
		err := send(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sent[method]++
		return err
	})
	return s, nil
}

func (l *lanes) mutex(name string) *dlock.RWMutex {
	client := dlock.NewClient(l)
	l.t.Cleanup(func() { client.Close() })
	return client.RWMutex(name)
}

func (l *lanes) requests() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.sent)
}

// await waits until so many requests of a method were answered.
func (l *lanes) await(method string, n int) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.requests()[method] >= n }, time.Minute, time.Millisecond)
}

func waitFor(ctx context.Context, m *dlock.RWMutex) <-chan error {
	got := make(chan error, 1)
	go func() {
		l, err := m.Lock(ctx)
		if err == nil {
			err = l.Unlock()
		}
		got <- err
	}()
	return got
}

// soon fails if a waiter gets the lock only because of a poll, the next of
// which is a quarter of an hour away.
func soon(t *testing.T, waits <-chan error) {
	t.Helper()
	select {
	case err := <-waits:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the waiter does not get the lock")
	}
}

func TestAWaiterOnALaneNeedsNoNotice(t *testing.T) {
	server := pgtest.Shared(t)
	dsn := server.DSN("schema="+server.Schema(), "session_timeout=1h")
	held := lock(t, newLanes(t, dsn).mutex("q"))
	l := newLanes(t, dsn)
	waits := waitFor(t.Context(), l.mutex("q"))
	l.await("Await", 2)
	require.NoError(t, held.Unlock())
	soon(t, waits)
	sent := l.requests()
	delete(sent, "Await") // one every 0.9 seconds
	assert.Equal(t, map[string]int{"Create": 1, "Delete": 1}, sent)
}

// Each notice wakes all listeners of the database, so one that nobody needs must
// not be sent.
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
	_ = listener.Raw(func(any) error { return sqldriver.ErrBadConn }) // closes the connection, with its subscription
}

func TestAWaiterPollsAfterTheLaneAheadWasLost(t *testing.T) {
	server := pgtest.Shared(t)
	schema := "schema=" + server.Schema()
	proxy := testenv.NewProxy(t, server.Addr(), nil)
	held := lock(t, newLanes(t, server.DSNAt(proxy.Addr(), schema, "session_timeout=1h")).mutex("q"))
	l := newLanes(t, server.DSN(schema, "session_timeout=1h", "notify=false"))
	waits := waitFor(t.Context(), l.mutex("q"))
	l.await("Await", 1)
	proxy.DropConnections()
	l.await("Look", 3)
	require.NoError(t, held.Unlock())
	soon(t, waits)
}

// The server would end the wait of a contender that has given up only later,
// and let the next one wait for it.
func TestAWaiterThatGivesUpLeavesNoWaitInTheServer(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	l := newLanes(t, c.server.DSN(c.params...))
	held := lock(t, l.mutex("q"))
	var text string
	require.NoError(t, c.admin.QueryRow("SELECT pg_get_functiondef('"+c.schema+".await'::regproc)").Scan(&text))
	require.Contains(t, text, "900ms")
	c.exec(t, strings.Replace(text, "900ms", "1h", 1))
	ctx, cancel := context.WithCancel(t.Context())
	first := waitFor(ctx, l.mutex("q"))
	waiting := func(n string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return c.server.SQL(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '%"+c.schema+".await%'") == n
		}, time.Minute, time.Millisecond)
	}
	waiting("1")
	next := waitFor(t.Context(), l.mutex("q"))
	waiting("2")
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	waiting("1")
	require.NoError(t, held.Unlock())
	soon(t, next)
}

func TestAWaiterOnALaneNoticesTheRemovalOfItsNode(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	l := newLanes(t, c.server.DSN(c.params...))
	held := lock(t, l.mutex("q"))
	waits := waitFor(t.Context(), l.mutex("q"))
	l.await("Await", 1)
	c.exec(t, "DELETE FROM dlock.node WHERE token <> $1", held.Token())
	l.await("Create", 3) // the waiter queues again
	require.NoError(t, held.Unlock())
	soon(t, waits)
}

func TestAHolderOnALaneNoticesTheRemovalOfItsNode(t *testing.T) {
	c := newCaseWith(t, "session_timeout=8s")
	l := newLanes(t, c.server.DSN(c.params...))
	first := lock(t, l.mutex("q"))
	next := make(chan *dlock.Lock, 1)
	go func() { next <- lock(t, l.mutex("q")) }()
	l.await("Await", 1)
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
	l := newLanes(t, server.DSN("schema="+server.Schema(), "session_timeout=1h", "lanes=1"))
	holder, waiter := dlock.NewClient(l), dlock.NewClient(l)
	defer holder.Close()
	defer waiter.Close()
	var held []*dlock.Lock
	var waits []<-chan error
	for _, name := range []string{"a", "b", "c"} {
		held = append(held, lock(t, holder.RWMutex(name)))
		waits = append(waits, waitFor(t.Context(), waiter.RWMutex(name)))
	}
	l.await("Look", 2)
	for i := range held {
		require.NoError(t, held[i].Unlock())
		soon(t, waits[i])
	}
}

// moved returns a session's store and two lanes of it, of which the second does
// not have its connection in the server any more, as behind a proxy.
func moved(t *testing.T) (l *lanes, st *store, ahead, own int64, first, second session.Lane) {
	server := pgtest.Shared(t)
	l = newLanes(t, server.DSN("schema="+server.Schema(), "session_timeout=1h"))
	st = newStore(l.inner)
	t.Cleanup(func() { st.Close() })
	require.NoError(t, st.Open(t.Context()))
	_, err := st.Begin(t.Context(), "A7", time.Hour)
	require.NoError(t, err)
	create := func() (int64, session.Lane) {
		token, _, lane, err := st.CreateOnLane(t.Context(), op, "q", "a-W-", nil)
		require.NoError(t, err)
		return token, lane
	}
	ahead, first = create()
	own, second = create()
	second.(*lane).backend++
	return l, st, ahead, own, first, second
}

var op = session.Op{Session: "A7", Generation: 1}

func TestALaneThatAProxyMovesIsNotUsed(t *testing.T) {
	_, st, ahead, own, first, second := moved(t)
	defer first.Close()
	_, _, err := second.Await(t.Context(), "A7", "q", own, ahead, nil)
	require.True(t, errors.Is(err, errMoved), err)
	_, _, none, err := st.CreateOnLane(t.Context(), op, "q", "a-W-", nil)
	require.NoError(t, err)
	assert.Nil(t, none)
}

func TestANodeIsRemovedAlthoughItsLaneHasMoved(t *testing.T) {
	_, st, _, own, first, second := moved(t)
	defer first.Close()
	require.NoError(t, second.Delete(t.Context(), op, "q", own, driver.Changed))
	nodes, err := st.List(t.Context(), "A7", "q")
	require.NoError(t, err)
	assert.Len(t, nodes, 1)
	_, _, none, err := st.CreateOnLane(t.Context(), op, "q", "a-W-", nil)
	require.NoError(t, err)
	assert.Nil(t, none)
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
