package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// counted is a session whose requests are counted. Its timeout is so long that
// no heartbeats are sent during a test.
type counted struct {
	*session.Session
	*sqltest.Counter
	proxy *testenv.Proxy

	mu    sync.Mutex
	gate  chan struct{} // if not nil, each poll first receives from it
	looks int           // polls that have passed the gate and were answered
}

func (s *counted) request(ctx context.Context, method string, send func(context.Context) error) error {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if method != "Look" || gate == nil {
		return s.Count(ctx, method, send)
	}
	select {
	case <-gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := s.Count(ctx, method, send)
	if err == nil {
		s.mu.Lock()
		s.looks++
		s.mu.Unlock()
	}
	return err
}

// holdLooks blocks the session's polls. Each send on the returned channel lets
// one poll through.
func (s *counted) holdLooks() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
	return s.gate
}

func (s *counted) roundTrips() int {
	n := 0
	for op, count := range s.proxy.Counts() {
		if op != mysqltest.OpOther && op != mysqltest.OpQuit {
			n += count
		}
	}
	return n
}

// countedConnector records its sessions.
type countedConnector struct {
	t        *testing.T
	server   *mysqltest.Server
	database string
	sessions []*counted
}

func newCounted(t *testing.T, server *mysqltest.Server) *countedConnector {
	return &countedConnector{t: t, server: server, database: server.Database()}
}

// startCounted starts a server with a binary log, in which the method commits
// counts the transactions that change data.
func startCounted(t *testing.T) *mysqltest.Server {
	return mysqltest.Start(t, mysqltest.WithConfig("log_bin=binlog", "sync_binlog=1"))
}

func (c *countedConnector) Connect(ctx context.Context) (driver.Session, error) {
	proxy := testenv.NewProxy(c.t, c.server.Addr(), mysqltest.Protocol)
	inner, err := Driver{}.OpenConnector(c.server.DSNAt(proxy.Addr(), c.database, "session_timeout=1h"))
	if err != nil {
		return nil, err
	}
	s, requests, err := connectIntercepted(ctx, inner.(*connector))
	if err != nil {
		return nil, err
	}
	cs := &counted{Session: s, Counter: new(sqltest.Counter), proxy: proxy}
	cs.RoundTrips = cs.roundTrips
	requests.Intercept(cs.request)
	c.sessions = append(c.sessions, cs)
	return cs, nil
}

// mutexes returns n mutexes of one queue, each with its own session. Each
// session has locked and waited before, so that its connections are open.
func (c *countedConnector) mutexes(n int) (found []*dlock.RWMutex) {
	for range n {
		client := dlock.NewClient(c)
		c.t.Cleanup(func() { client.Close() })
		found = append(found, client.RWMutex("counted"))
		lock(c.t, found[len(found)-1]).Unlock()
	}
	// Open each session's two connections, for changes and for polling.
	for i, s := range c.sessions {
		gate := s.holdLooks()
		held := lock(c.t, found[(i+1)%n])
		var waited <-chan *dlock.Lock
		if n > 1 {
			waited = c.wait(found[i], s, gate)
		}
		held.Unlock()
		s.openGate()
		if n > 1 {
			(<-waited).Unlock()
		}
	}
	return found
}

func (s *counted) openGate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = nil
}

// wait calls Lock on another goroutine and returns once the waiter's watch is
// armed. The waiter's next poll is then blocked until the test sends on gate.
func (c *countedConnector) wait(m *dlock.RWMutex, s *counted, gate chan<- struct{}) <-chan *dlock.Lock {
	got := make(chan *dlock.Lock, 1)
	go func() { got <- lock(c.t, m) }()
	s.passLook(c.t, gate)
	return got
}

// passLook unblocks one poll and waits for its reply.
func (s *counted) passLook(t *testing.T, gate chan<- struct{}) {
	t.Helper()
	before := s.passed()
	gate <- struct{}{}
	eventually(t, "the look is not answered", func() bool { return s.passed() > before })
}

func (s *counted) passed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

var lock = sqltest.Lock

func TestFreeLockTakesTwoTransactionsOfOneRoundTrip(t *testing.T) {
	c := newCounted(t, startCounted(t))
	m := c.mutexes(1)[0]
	s := c.sessions[0]
	s.Reset()
	commits := c.commits()
	lock(t, m).Unlock()
	if n := c.commits() - commits; n != 2 {
		t.Errorf("%d transactions have changed the database, want 2", n)
	}
	if err := s.Expect(map[string]int{"Create": 1, "Delete": 1}); err != nil {
		t.Error(err)
	}
}

// commits returns the number of data-changing transactions that the server has
// committed.
func (c *countedConnector) commits() (n int) {
	c.t.Helper()
	text := c.server.SQL(c.t, "", "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Binlog_commits'")
	n, err := strconv.Atoi(text)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// One hand-over costs three requests: the waiter adds its node, the holder
// removes its own, and one poll shows the waiter the removal. Further polls
// depend on timing, so the test blocks them.
func TestHandOverTakesTwoTransactionsAndOneLook(t *testing.T) {
	server := startCounted(t)
	sqltest.Count(t, func() (time.Time, error) { return countHandOver(t, server) })
}

func countHandOver(t *testing.T, server *mysqltest.Server) (began time.Time, err error) {
	c := newCounted(t, server)
	found := c.mutexes(2)
	holder, waiter := c.sessions[0], c.sessions[1]
	began = time.Now()
	held := lock(t, found[0])
	gate := waiter.holdLooks()
	holder.Reset()
	waiter.Reset()
	commits := c.commits()

	next := c.wait(found[1], waiter, gate)
	held.Unlock()
	gate <- struct{}{}
	for held = nil; held == nil; {
		select {
		case held = <-next:
			continue
		case <-time.After(300 * time.Millisecond): // if the hand-over is slow, let another poll through
		}
		select {
		case held = <-next:
		case gate <- struct{}{}:
		}
	}
	err = errors.Join(
		holder.Expect(map[string]int{"Delete": 1}),
		waiter.Expect(map[string]int{"Create": 1, "Look": 2}),
	)
	if n := c.commits() - commits; n != 2 {
		err = errors.Join(err, fmt.Errorf("%d transactions have changed the database, want 2", n))
	}
	waiter.openGate()
	held.Unlock()
	return began, err
}
