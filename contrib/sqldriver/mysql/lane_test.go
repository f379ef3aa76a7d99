package mysql

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func newWaiters(t *testing.T, dsn string) *sqltest.Waiters {
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	return sqltest.NewWaiters(t, func(ctx context.Context) (*session.Session, *sqltest.Requests, error) {
		return connectIntercepted(ctx, c.(*connector))
	})
}

func TestAWaiterOnALaneDoesNotPoll(t *testing.T) {
	server := mysqltest.Shared(t)
	dsn := server.DSN(server.Database(), "session_timeout=1h")
	sqltest.NoPolls(t, newWaiters(t, dsn), newWaiters(t, dsn))
}

func TestALaneEndsWithItsNode(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	held := newWaiters(t, server.DSN(database, "session_timeout=1h")).Lock()
	free := func() string {
		return server.SQL(t, database, fmt.Sprintf(
			"SELECT IS_FREE_LOCK(CONCAT('dlock/', LEFT(SHA1(CONCAT(DATABASE(), '/', 'q')), 32), '/', %d))", held.Token()))
	}
	assert.Equal(t, "0", free())
	require.NoError(t, held.Unlock())
	assert.Equal(t, "1", free())
}

func TestNodesOfTwoQueuesMayHaveOneToken(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	dsn := server.DSN(database, "session_timeout=1h")
	first := newWaiters(t, dsn).Client()
	require.NoError(t, first.Ping(t.Context()))
	server.SQL(t, database, "INSERT INTO dlock_queue (name, last, used) VALUES ('a', 1e17, TO_DAYS(NOW())), ('b', 1e17, TO_DAYS(NOW()))")
	a, b := lock(t, first.RWMutex("a")), lock(t, first.RWMutex("b"))
	require.Equal(t, a.Token(), b.Token())
	second := newWaiters(t, dsn).Client()
	waits := []<-chan error{sqltest.Wait(t.Context(), second.RWMutex("a")), sqltest.Wait(t.Context(), second.RWMutex("b"))}
	require.NoError(t, errors.Join(a.Unlock(), b.Unlock()))
	for _, w := range waits {
		sqltest.Soon(t, w)
	}
}

func TestAWaiterPollsAfterTheLaneAheadWasLost(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	proxy := testenv.NewProxy(t, server.Addr(), nil)
	sqltest.PollsWithoutLane(t,
		newWaiters(t, server.DSNAt(proxy.Addr(), database, "session_timeout=1h")),
		newWaiters(t, server.DSN(database, "session_timeout=1h")), proxy.DropConnections)
}

// If a contender gives up, the driver must kill its wait in the server.
// Otherwise the wait would go on for up to a second, and the next contender
// would wait behind it.
func TestAWaiterThatGivesUpLeavesNoWaitInTheServer(t *testing.T) {
	server := mysqltest.Start(t)
	l := newWaiters(t, server.DSN(server.Database(), "session_timeout=1h"))
	held := l.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	first := l.Wait(ctx)
	l.Await("Await", 1)
	next := l.Wait(t.Context())
	l.Await("Create", 3)
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	kills := "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'COM_KILL'"
	assert.Equal(t, "1", server.SQL(t, "", kills))
	require.NoError(t, held.Unlock())
	sqltest.Soon(t, next)
}

func TestLanesAreBounded(t *testing.T) {
	server := mysqltest.Shared(t)
	sqltest.OneLane(t, newWaiters(t, server.DSN(server.Database(), "session_timeout=2s", "lanes=1")))
}

func TestALaneNoticesThatAProxyHasMovedIt(t *testing.T) {
	server := mysqltest.Shared(t)
	c, err := Driver{}.OpenConnector(server.DSN(server.Database(), "session_timeout=1h"))
	require.NoError(t, err)
	st, err := newStore(c.(*connector))
	require.NoError(t, err)
	defer st.Close()
	require.NoError(t, st.Open(t.Context()))
	_, err = st.Begin(t.Context(), "A7", time.Hour)
	require.NoError(t, err)
	create := func() (int64, session.Lane) {
		l := st.Lane(t.Context())
		token, _, ok, err := l.Create(t.Context(), session.Op{Session: "A7", Generation: 1}, "q", "a-W-", nil)
		require.NoError(t, err)
		require.True(t, ok)
		return token, l
	}
	ahead, first := create()
	defer first.Leave(session.ErrMoved)
	own, moved := create()
	defer moved.Leave(session.ErrMoved)
	_, err = moved.(*lane).on.ExecContext(t.Context(), "DO RELEASE_ALL_LOCKS()")
	require.NoError(t, err)
	_, _, err = moved.Await(t.Context(), "A7", "q", own, ahead, nil)
	require.ErrorIs(t, err, session.ErrMoved)
}

func TestLanesNeedConnectionsOfTheProgram(t *testing.T) {
	server := mysqltest.Shared(t)
	db := openDB(t, server, server.Database())
	db.SetMaxOpenConns(session.MinConnections + 1)
	c, err := NewConnector(db, Options{Lanes: 2, EmptyIsNew: true})
	require.NoError(t, err)
	_, err = c.Connect(t.Context())
	require.ErrorContains(t, err, "allows 4 connections, and a session needs 5")
	c, err = NewConnector(db, Options{Lanes: 1, EmptyIsNew: true})
	require.NoError(t, err)
	client := dlock.NewClient(c)
	defer client.Close()
	require.NoError(t, lock(t, client.RWMutex("q")).Unlock())
	_, err = NewConnector(db, Options{Lanes: -1})
	require.ErrorContains(t, err, "Options.Lanes")
}
