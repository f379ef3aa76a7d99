package mysql

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

const conformanceTimeout = time.Second

func TestConformance(t *testing.T) {
	dlocktest.Run(t, conformance(newCase))
}

// conformance returns the configuration of the kit for the connectors that newStore
// returns.
func conformance(newStore func(t *testing.T) driver.Connector) dlocktest.Config {
	return dlocktest.Config{
		New: newStore,
		// Tokens are microseconds since 1970, or the last token and one. They
		// do not reach 18 digits before the year 5138. So no test needs a
		// store whose tokens are near their end.
		NewNearRollOver: newStore,
		SessionTimeout:  conformanceTimeout,
		Complete:        true,
		Abilities: []dlocktest.Ability{dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityRead,
			dlocktest.AbilityReleased, dlocktest.AbilityReplace, dlocktest.AbilityWalk},
		Drop: func(t *testing.T, s driver.Session) {
			cs := s.(*caseSession)
			cs.store.exec(t, callText(cs.store.database, "dlock_end", []any{cs.ID()}))
		},
		CutOff: func(t *testing.T, s driver.Session) (heal func()) {
			return s.(*caseSession).cut()
		},
		Reset:          func(t *testing.T, s driver.Session) { s.(*caseSession).proxy.DropConnections() },
		SilenceNotices: func(*testing.T, driver.Session) {}, // this driver polls, so there are no notices
		LoseRequest:    func(t *testing.T, s driver.Session, op faults.Op) { s.(*caseSession).lose(t, op, false) },
		LoseReply:      func(t *testing.T, s driver.Session, op faults.Op) { s.(*caseSession).lose(t, op, true) },
		HoldRequest: func(t *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			return s.(*caseSession).hold(t, op)
		},
		DelayReplies: func(t *testing.T, s driver.Session, d time.Duration) {
			s.(*caseSession).proxy.SetDelayOneWay(testenv.ToClient, d)
		},
		Pause: func(t *testing.T, s driver.Session, d time.Duration) {
			dlocktest.SkewLease(s.(*caseSession).Lease(), d)
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			c.(*caseStore).exec(t, "DELETE FROM dlock_node WHERE queue = ?", queue)
			c.(*caseStore).exec(t, "DELETE FROM dlock_queue WHERE name = ?", queue)
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			c.(*caseStore).exec(t, "DELETE FROM dlock_node WHERE queue = ? AND name = ?", queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			c.(*caseStore).exec(t, "INSERT INTO dlock_node (queue, name, data) VALUES (?, ?, ?)", queue, name, slices.Concat([]byte{}, data))
		},
	}
}

// caseStore is a database of the shared server. Each of its sessions has a proxy.
type caseStore struct {
	t        *testing.T
	server   *mysqltest.Server
	database string
	params   []string
	admin    *sql.DB

	outages bool // the test kills the server at times, so exec ignores errors
}

// caseSession is a session with its proxy.
type caseSession struct {
	*session.Session
	store *caseStore
	proxy *testenv.Proxy

	mu     sync.Mutex
	isCut  bool
	closed bool // the proxy is closed
}

// cut cuts the session off until heal is called.
func (s *caseSession) cut() (heal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isCut = true
	s.proxy.Cut()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.isCut = false
		s.proxy.DropConnections()
		s.proxy.Heal()
	})
}

// dial connects the session to its proxy or, once the proxy is closed, to the server
// itself. If the session was cut off when its proxy was closed, dial fails.
func (s *caseSession) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	s.mu.Lock()
	addr := s.proxy.Addr()
	if s.closed {
		addr = s.store.server.Addr()
	}
	fail := s.closed && s.isCut
	s.mu.Unlock()
	if fail {
		return nil, errors.New("cut off")
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, addr)
}

func newCase(t *testing.T) driver.Connector { return newCaseWith(t) }

func newCaseWith(t *testing.T, params ...string) *caseStore {
	return newCaseOn(t, mysqltest.Shared(t), params...)
}

func newCaseOn(t *testing.T, server *mysqltest.Server, params ...string) *caseStore {
	c := &caseStore{t: t, server: server, database: server.Database()}
	c.params = append([]string{"session_timeout=" + conformanceTimeout.String()}, params...)
	db, err := sql.Open("mysql", server.DSN(c.database))
	if err != nil {
		t.Fatal(err)
	}
	c.admin = db
	t.Cleanup(func() { db.Close() })
	return c
}

// Connect implements driver.Connector.
func (c *caseStore) Connect(ctx context.Context) (driver.Session, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port of testenv stays reserved, with an open file
	if err != nil {
		return nil, err
	}
	proxy := testenv.ProxyOn(l, c.server.Addr())
	proxy.Serve(nil)
	inner, err := Driver{}.OpenConnector(c.server.DSNAt(proxy.Addr(), c.database, c.params...))
	if err != nil {
		c.t.Error(err)
	}
	cs := &caseSession{store: c, proxy: proxy}
	inner.(*connector).config.DialFunc = cs.dial
	s, err := inner.Connect(ctx)
	if err != nil {
		proxy.Close()
		return nil, err
	}
	cs.Session = s.(*session.Session)
	c.t.Cleanup(proxy.Close)
	return cs, nil
}

// exec runs a statement as an operator does.
func (c *caseStore) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := c.admin.Exec(text, args...); err != nil && !c.outages {
		t.Fatal(err)
	}
}

// Close closes the session, and then the proxy, whose connections are closed by now.
func (s *caseSession) Close() error {
	err := s.Session.Close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.proxy.DropConnections()
	s.proxy.Close()
	return err
}

// procedures has the procedure for each operation that a test loses or holds back.
var procedures = map[faults.Op]string{faults.OpCreate: "dlock_append", faults.OpList: "dlock_look",
	faults.OpDelete: "dlock_remove", faults.OpReplace: "dlock_replace"}

// intercept calls f in place of the next call that the session makes for the operation.
func (s *caseSession) intercept(t *testing.T, op faults.Op, f interceptor) {
	wanted, ok := procedures[op]
	if !ok {
		t.Fatalf("no procedure for %v", op)
	}
	var once sync.Once
	var hook interceptor = func(ctx context.Context, procedure, text string, send func(context.Context) error) error {
		first := false
		if procedure == wanted {
			once.Do(func() { first = true })
		}
		if !first {
			return send(ctx)
		}
		return f(ctx, procedure, text, send)
	}
	s.Store().(*store).intercept.Store(&hook)
}

// lose loses the next request of the session for the operation. If reply is true, the
// request reaches the server, and only its reply is lost.
func (s *caseSession) lose(t *testing.T, op faults.Op, reply bool) {
	s.intercept(t, op, func(ctx context.Context, _, _ string, send func(context.Context) error) error {
		if reply {
			if err := send(ctx); err != nil {
				return err
			}
		}
		return io.ErrUnexpectedEOF
	})
}

// hold keeps the next request of the session for the operation back, and lets the
// session see a broken connection. When the test calls arrive, the request reaches the
// server on another connection.
func (s *caseSession) hold(t *testing.T, op faults.Op) (arrive func()) {
	held := make(chan func(), 1)
	s.intercept(t, op, func(_ context.Context, _, text string, _ func(context.Context) error) error {
		held <- func() { _, _ = s.store.admin.Exec(text) }
		return io.ErrUnexpectedEOF
	})
	return func() {
		select {
		case send := <-held:
			send()
		default:
		}
	}
}
