package mysql

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// lanes is a connector whose sessions hardly poll while they wait on lanes. It
// counts the requests of all of them.
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

func (l *lanes) client() *dlock.Client {
	client := dlock.NewClient(l)
	l.t.Cleanup(func() { client.Close() })
	return client
}

func (l *lanes) mutex(name string) *dlock.RWMutex { return l.client().RWMutex(name) }

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

// soon waits for at most 40 seconds. After a minute, an idle connection is
// closed, which would give the waiter the lock even if its wake-up was lost.
func soon(t *testing.T, waits <-chan error) {
	t.Helper()
	select {
	case err := <-waits:
		require.NoError(t, err)
	case <-time.After(40 * time.Second):
		t.Fatal("the waiter does not get the lock")
	}
}

func TestAWaiterOnALaneDoesNotPoll(t *testing.T) {
	server := mysqltest.Shared(t)
	dsn := server.DSN(server.Database(), "session_timeout=1h")
	held := lock(t, newLanes(t, dsn).mutex("q"))
	l := newLanes(t, dsn)
	waits := waitFor(t.Context(), l.mutex("q"))
	l.await("Await", 2)
	require.NoError(t, held.Unlock())
	soon(t, waits)
	sent := l.requests()
	delete(sent, "Await") // one a second
	assert.Equal(t, map[string]int{"Create": 1, "Delete": 1}, sent)
}

func TestNodesOfTwoQueuesMayHaveOneToken(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	dsn := server.DSN(database, "session_timeout=1h")
	first := newLanes(t, dsn).client()
	require.NoError(t, first.Ping(t.Context()))
	server.SQL(t, database, "INSERT INTO dlock_queue (name, last, used) VALUES ('a', 1e17, TO_DAYS(NOW())), ('b', 1e17, TO_DAYS(NOW()))")
	a, b := lock(t, first.RWMutex("a")), lock(t, first.RWMutex("b"))
	require.Equal(t, a.Token(), b.Token())
	second := newLanes(t, dsn).client()
	waits := []<-chan error{waitFor(t.Context(), second.RWMutex("a")), waitFor(t.Context(), second.RWMutex("b"))}
	require.NoError(t, errors.Join(a.Unlock(), b.Unlock()))
	for _, w := range waits {
		soon(t, w)
	}
}

func TestAWaiterPollsAfterTheLaneAheadWasLost(t *testing.T) {
	server := mysqltest.Shared(t)
	database := server.Database()
	proxy := testenv.NewProxy(t, server.Addr(), nil)
	held := lock(t, newLanes(t, server.DSNAt(proxy.Addr(), database, "session_timeout=1h")).mutex("q"))
	l := newLanes(t, server.DSN(database, "session_timeout=1h"))
	waits := waitFor(t.Context(), l.mutex("q"))
	l.await("Await", 1)
	proxy.DropConnections()
	l.await("Look", 3)
	require.NoError(t, held.Unlock())
	soon(t, waits)
}

// A server would end the wait of a contender that has given up only after a
// second, and let the next one wait for it.
func TestAWaiterThatGivesUpLeavesNoWaitInTheServer(t *testing.T) {
	server := mysqltest.Start(t)
	l := newLanes(t, server.DSN(server.Database(), "session_timeout=1h"))
	held := lock(t, l.mutex("q"))
	ctx, cancel := context.WithCancel(t.Context())
	first := waitFor(ctx, l.mutex("q"))
	l.await("Await", 1)
	next := waitFor(t.Context(), l.mutex("q"))
	l.await("Create", 3)
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	kills := "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'COM_KILL'"
	assert.Equal(t, "1", server.SQL(t, "", kills))
	require.NoError(t, held.Unlock())
	soon(t, next)
}

func TestLanesAreBounded(t *testing.T) {
	server := mysqltest.Shared(t)
	l := newLanes(t, server.DSN(server.Database(), "session_timeout=2s", "lanes=1"))
	holder, waiter := l.client(), l.client()
	var held []*dlock.Lock
	var waits []<-chan error
	for _, name := range []string{"a", "b", "c"} {
		held = append(held, lock(t, holder.RWMutex(name)))
		waits = append(waits, waitFor(t.Context(), waiter.RWMutex(name)))
	}
	l.await("Look", 3)
	for i := range held {
		require.NoError(t, held[i].Unlock())
		require.NoError(t, <-waits[i])
	}
}

func TestALaneThatAProxyMovesIsNotUsed(t *testing.T) {
	server := mysqltest.Shared(t)
	l := newLanes(t, server.DSN(server.Database(), "session_timeout=1h"))
	st, err := newStore(l.inner)
	require.NoError(t, err)
	defer st.Close()
	require.NoError(t, st.Open(t.Context()))
	_, err = st.Begin(t.Context(), "A7", time.Hour)
	require.NoError(t, err)
	create := func() (int64, session.Lane) {
		token, _, lane, err := st.CreateOnLane(t.Context(), session.Op{Session: "A7", Generation: 1}, "q", "a-W-", nil)
		require.NoError(t, err)
		return token, lane
	}
	ahead, first := create()
	defer first.Close()
	own, moved := create()
	_, err = moved.(*lane).on.ExecContext(t.Context(), "DO RELEASE_ALL_LOCKS()")
	require.NoError(t, err)
	_, _, err = moved.Await(t.Context(), "A7", "q", own, ahead, nil)
	require.True(t, errors.Is(err, errMoved), err)
	_, none := create()
	assert.Nil(t, none)
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
