package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// counted is a session whose requests are counted. Its timeout is so long that
// it neither sends heartbeats nor polls during a test.
type counted struct {
	*session.Session
	*sqltest.Counter
	joined atomic.Int64 // number of Creates that were answered
}

func (s *counted) request(ctx context.Context, method string, send func(context.Context) error) error {
	err := s.Count(ctx, method, send)
	if err == nil && method == "Create" {
		s.joined.Add(1)
	}
	return err
}

// countedConnector records its sessions.
type countedConnector struct {
	t        *testing.T
	server   *pgtest.Server
	schema   string
	sessions []*counted
}

func (c *countedConnector) Connect(ctx context.Context) (driver.Session, error) {
	proxy := testenv.NewProxy(c.t, c.server.Addr(), pgtest.Protocol)
	inner, err := Driver{}.OpenConnector(c.server.DSNAt(proxy.Addr(), "session_timeout=10m", "schema="+c.schema))
	if err != nil {
		return nil, err
	}
	s, requests, err := connectIntercepted(ctx, inner.(*connector))
	if err != nil {
		return nil, err
	}
	cs := &counted{Session: s, Counter: &sqltest.Counter{RoundTrips: func() int {
		counts := proxy.Counts()
		return counts[pgtest.OpSync] + counts[pgtest.OpQuery]
	}}}
	requests.Intercept(cs.request)
	c.sessions = append(c.sessions, cs)
	return cs, nil
}

// mutexes returns n mutexes of one queue, each with its own session. Each
// session has waited before, so that its connections are open, its statements
// prepared and its listener subscribed.
func (c *countedConnector) mutexes(n int) (found []*dlock.RWMutex) {
	for range n {
		client := dlock.NewClient(c)
		c.t.Cleanup(func() { client.Close() })
		m := client.RWMutex("counted")
		lock(c.t, m).Unlock()
		found = append(found, m)
	}
	// Let each session wait once, for a lock of the session before it.
	for i := range found {
		held := lock(c.t, found[(i+n-1)%n])
		waited := c.wait(found[i], c.sessions[i])
		held.Unlock()
		(<-waited).Unlock()
		lock(c.t, found[i]).Unlock()
	}
	return found
}

// wait calls Lock on another goroutine and returns once the waiter's node is in
// the queue.
func (c *countedConnector) wait(m *dlock.RWMutex, s *counted) <-chan *dlock.Lock {
	c.t.Helper()
	before := s.joined.Load()
	got := make(chan *dlock.Lock, 1)
	go func() { got <- lock(c.t, m) }()
	for s.joined.Load() == before {
		time.Sleep(time.Millisecond)
	}
	return got
}

var lock = sqltest.Lock

func newCounted(t *testing.T, server *pgtest.Server) *countedConnector {
	return &countedConnector{t: t, server: server, schema: server.Schema()}
}

// startCounted starts a server without autovacuum, so that the method changes
// counts only transactions of the test.
func startCounted(t *testing.T) *pgtest.Server {
	return pgtest.Start(t, pgtest.WithConfig("autovacuum=off"))
}

// changes returns the next transaction ID. The difference between two calls is
// the number of transactions that changed the database in between.
func (c *countedConnector) changes() int {
	c.t.Helper()
	n, err := strconv.Atoi(c.server.SQL(c.t, "SELECT pg_snapshot_xmax(pg_current_snapshot())"))
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func TestFreeLockTakesTwoTransactionsOfOneRoundTrip(t *testing.T) {
	c := newCounted(t, startCounted(t))
	m := c.mutexes(1)[0]
	s := c.sessions[0]
	s.Reset()
	changes := c.changes()
	lock(t, m).Unlock()
	if n := c.changes() - changes; n != 2 {
		t.Errorf("%d transactions have changed the database, want 2", n)
	}
	if err := s.Expect(map[string]int{"Create": 1, "Delete": 1}); err != nil {
		t.Error(err)
	}
}

func TestHandOverTakesTwoRequestsOfOneRoundTrip(t *testing.T) {
	server := startCounted(t)
	sqltest.Count(t, func() (time.Time, error) { return countHandOver(t, server) })
}

// countHandOver returns an error unless a hand-over takes exactly the expected
// requests. A third session joins the queue during the hand-over.
func countHandOver(t *testing.T, server *pgtest.Server) (began time.Time, err error) {
	c := newCounted(t, server)
	found := c.mutexes(3)
	began = time.Now()
	held := lock(t, found[0])
	second := c.wait(found[1], c.sessions[1])
	for _, s := range c.sessions {
		s.Reset()
	}
	changes := c.changes()

	third := c.wait(found[2], c.sessions[2])
	held.Unlock()
	held = <-second
	err = errors.Join(
		c.sessions[0].Expect(map[string]int{"Delete": 1}),
		c.sessions[1].Expect(map[string]int{}),
		c.sessions[2].Expect(map[string]int{"Create": 1}),
	)
	// Each request that changes the database uses a second transaction, which
	// waits for the disk.
	if n := c.changes() - changes; n != 4 {
		err = errors.Join(err, fmt.Errorf("%d transactions have changed the database, want 4", n))
	}

	c.sessions[1].Reset()
	c.sessions[2].Reset()
	held.Unlock()
	(<-third).Unlock()
	return began, errors.Join(err,
		c.sessions[1].Expect(map[string]int{"Delete": 1}),
		c.sessions[2].Expect(map[string]int{"Delete": 1}),
	)
}
