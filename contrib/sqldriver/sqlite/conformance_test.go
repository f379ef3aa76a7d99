package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	modernc "modernc.org/sqlite"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
)

const conformanceTimeout = time.Second

func TestConformance(t *testing.T) { dlocktest.Run(t, conformance()) }

func conformance() dlocktest.Config {
	return dlocktest.Config{
		New: newStore,
		// No roll-over ever comes, because the counter lasts for 10^18 nodes.
		NewNearRollOver: newStore,
		SessionTimeout:  conformanceTimeout,
		Parallel:        4,
		Complete:        true,
		Abilities:       []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityReleased, dlocktest.AbilityCheck},
		Drop: func(t *testing.T, s driver.Session) {
			operate(t, memberOf(s).path, sqlEnd, memberOf(s).presence.id)
		},
		CutOff:         func(_ *testing.T, s driver.Session) (heal func()) { return wireOf(s).cut() },
		Reset:          func(_ *testing.T, s driver.Session) { wireOf(s).broken.Store(true) },
		SilenceNotices: silenceNotices,
		LoseRequest:    func(_ *testing.T, s driver.Session, op faults.Op) { wireOf(s).lose(op, false) },
		LoseReply:      func(_ *testing.T, s driver.Session, op faults.Op) { wireOf(s).lose(op, true) },
		HoldRequest:    holdRequest,
		DelayReplies:   delayReplies,
		Pause: func(t *testing.T, s driver.Session, d time.Duration) {
			dlocktest.SkewLease(s.(*session.Session).Lease(), d)
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			operate(t, c.(*store).path, `DELETE FROM dlock_node WHERE queue = ?`, queue)
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			operate(t, c.(*store).path, `DELETE FROM dlock_node WHERE queue = ? AND name = ?`, queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			_, seq, _ := driver.ParseName(name)
			operate(t, c.(*store).path, `INSERT INTO dlock_node (queue, seq, name, data) VALUES (?, ?, ?, ?)`,
				queue, seq, name, data)
		},
	}
}

// silenceNotices removes the session's named pipe, if the system has named
// pipes.
func silenceNotices(t *testing.T, s driver.Session) {
	pipe := filepath.Join(memberOf(s).path+"-sessions", memberOf(s).presence.id+".wake")
	if err := os.Remove(pipe); !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
}

// holdRequest only rolls back, because a request to a local file is never late.
func holdRequest(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
	wireOf(s).lose(op, false)
	return func() {}
}

// delayReplies gives the session its own write queue, so that others are not
// delayed.
func delayReplies(_ *testing.T, s driver.Session, d time.Duration) {
	memberOf(s).db.writers.Store(newWriters())
	wireOf(s).delay.Store(int64(d))
}

// operate runs a statement as an operator with the sqlite3 program would.
func operate(t testing.TB, path, query string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", fileURI(path)+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(query, args...)
	require.NoError(t, err)
}

// directory uses memory if possible, because tests make thousands of changes.
func directory(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "dlock-sqlite-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

type store struct {
	*connector
	// synced, if not nil, is called after each commit that waits for the disk.
	synced    func()
	reserving func(full bool) // called when tokens are reserved; full means synced
}

func newStore(t *testing.T) driver.Connector {
	return newStoreAt(t, filepath.Join(directory(t), "locks.db"), conformanceTimeout)
}

func newStoreAt(t testing.TB, path string, timeout time.Duration) *store {
	c, err := Driver{}.OpenConnector(path + "?session_timeout=" + timeout.String())
	require.NoError(t, err)
	return &store{connector: c.(*connector)}
}

func memberOf(s driver.Session) *member { return s.(*session.Session).Store().(*member) }

var wires sync.Map // the *wire of each driver.Session

func wireOf(s driver.Session) *wire {
	w, _ := wires.Load(s)
	return w.(*wire)
}

func (st *store) Connect(ctx context.Context) (driver.Session, error) {
	path, err := st.connector.file(ctx)
	if err != nil {
		return nil, connectError(err)
	}
	base, err := modernc.NewConnector(fileURI(path))
	if err != nil {
		return nil, connectError(err)
	}
	w := &wire{Connector: base, store: st}
	s, err := st.connector.begin(ctx, path, w)
	if err != nil {
		return nil, err
	}
	wires.Store(s, w)
	return s, nil
}

// wire injects faults between a session and SQLite.
type wire struct {
	sqldriver.Connector
	store  *store
	broken atomic.Bool
	delay  atomic.Int64 // delay of each reply, in nanoseconds

	commits, reads atomic.Int64 // numbers of commits and queue reads
	busy           atomic.Int64 // transactions that found the file locked

	mu     sync.Mutex
	cuts   int
	losing *loss
}

type loss struct {
	op        faults.Op
	committed bool
}

func (w *wire) cut() (heal func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cuts--
	})
}

func (w *wire) lose(op faults.Op, committed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losing = &loss{op, committed}
}

func (w *wire) take(ops ...faults.Op) *loss {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range ops {
		if w.losing != nil && w.losing.op == op {
			l := w.losing
			w.losing = nil
			return l
		}
	}
	return nil
}

// pass returns an error while the wire is cut, so that the driver retries.
func (w *wire) pass() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts > 0 {
		return failure(codeBusy)
	}
	return nil
}

func (w *wire) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if err := w.pass(); err != nil {
		return nil, err
	}
	inner, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: inner, wire: w}, nil
}

// conn hides the inner connection's optional methods, so that every statement
// goes through stmt.
type conn struct {
	sqldriver.Conn
	wire   *wire
	losing *loss // to inject into the current transaction, or nil
	within bool  // a transaction has begun
	full   bool  // commits wait for the disk
	stmts  []sqldriver.Stmt
}

// Close closes the statements first, because database/sql leaves them open if
// the connection broke.
func (c *conn) Close() error {
	for _, s := range c.stmts {
		_ = s.Close()
	}
	return c.Conn.Close()
}

func (c *conn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	inner, err := c.Conn.(sqldriver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts = append(c.stmts, inner)
	return &stmt{inner, c, query}, nil
}

type stmt struct {
	sqldriver.Stmt
	conn  *conn
	query string
}

func (s *stmt) Close() error { return nil } // the connection closes it

// before injects faults. A cut lets open transactions finish, so they block
// nobody.
func (s *stmt) before() error {
	c := s.conn
	if c.wire.broken.CompareAndSwap(true, false) {
		return sqldriver.ErrBadConn
	}
	if !c.within && s.query != sqlRollback && s.query != sqlUndurable {
		if err := c.wire.pass(); err != nil {
			return err
		}
	}
	switch s.query {
	case sqlBegin:
		c.losing = nil
	case sqlInsert:
		c.losing = c.wire.take(faults.OpCreate)
	case sqlDelete:
		c.losing = c.wire.take(faults.OpDelete)
	case sqlReplace:
		c.losing = c.wire.take(faults.OpReplace)
	case sqlQueue:
		if !c.within && c.wire.take(faults.OpList) != nil {
			return sqldriver.ErrBadConn
		}
	case sqlCommit:
		if c.losing != nil && !c.losing.committed {
			_, err := c.Conn.(sqldriver.ExecerContext).ExecContext(context.Background(), sqlRollback, nil)
			return errors.Join(sqldriver.ErrBadConn, err)
		}
	}
	return nil
}

func (s *stmt) after(err error) error {
	c := s.conn
	if s.query == sqlBegin && isBusy(err) {
		c.wire.busy.Add(1)
	}
	switch {
	case err != nil:
	case s.query == sqlDurable || s.query == sqlUndurable:
		c.full = s.query == sqlDurable
	case (s.query == sqlReserve || s.query == sqlSkip) && c.wire.store.reserving != nil:
		c.wire.store.reserving(c.full)
	case s.query == sqlBegin:
		c.within = true
	case s.query == sqlQueue && !c.within:
		c.wire.reads.Add(1)
	case s.query == sqlCommit:
		c.within = false
		c.wire.commits.Add(1)
		if c.full && c.wire.store.synced != nil {
			c.wire.store.synced()
		}
		time.Sleep(time.Duration(c.wire.delay.Load()))
		if c.losing != nil {
			return sqldriver.ErrBadConn
		}
	}
	if s.query == sqlRollback {
		c.within = false
	}
	return err
}

func (s *stmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if err := s.before(); err != nil {
		return nil, err
	}
	r, err := s.Stmt.(sqldriver.StmtExecContext).ExecContext(ctx, args)
	return r, s.after(err)
}

func (s *stmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := s.before(); err != nil {
		return nil, err
	}
	r, err := s.Stmt.(sqldriver.StmtQueryContext).QueryContext(ctx, args)
	return r, s.after(err)
}
