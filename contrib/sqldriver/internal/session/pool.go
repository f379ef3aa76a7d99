package session

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// MinConnections is the least that a session needs: one each for changes,
	// heartbeats, and notices or polling.
	MinConnections = 3
	// MaxConnections is the maximum of the max_connections parameter.
	MaxConnections = 1 << 16
	// DefaultConnections is the default of the max_connections parameter.
	DefaultConnections = 8
)

// Pool holds the connections of one session. They are either borrowed from the
// program's *sql.DB or opened by the session.
type Pool struct {
	shared *sql.DB // nil if the session opens its own connections
	open   func() (db *sql.DB, end func(), err error)
	size   int
	idle   time.Duration // after which the session's own connections are closed
	slots  chan struct{} // limits requests made for callers, not background requests

	mu  sync.Mutex
	own *sql.DB // guarded by mu; nil before the first use and after Close
	end func()  // guarded by mu
}

// NewPool returns a pool that borrows connections from shared. If shared is
// nil, the pool calls open and allows that database the given number of
// connections. Those that are idle for two heartbeats of a session with the
// given timeout are closed soon, so that clients at rest leave connections to
// others. Close closes the database and then calls the end function returned
// by open.
func NewPool(shared *sql.DB, connections int, timeout time.Duration, open func() (db *sql.DB, end func(), err error)) *Pool {
	if shared != nil {
		connections = shared.Stats().MaxOpenConnections
	}
	if connections <= 0 {
		connections = DefaultConnections
	}
	return &Pool{shared: shared, open: open, size: connections, idle: min(timeout/4, time.Minute), slots: make(chan struct{}, connections-2)}
}

// CheckConnections returns an error if db allows too few connections for a
// session. It accepts a nil db.
func CheckConnections(db *sql.DB) error {
	if db == nil {
		return nil
	}
	if n := db.Stats().MaxOpenConnections; n > 0 && n < MinConnections {
		return fmt.Errorf("the *sql.DB allows %d connections, and a session needs %d: call SetMaxOpenConns", n, MinConnections)
	}
	return nil
}

// DB returns the database, reopening it if it was closed.
func (p *Pool) DB() (*sql.DB, error) {
	if p.shared != nil {
		return p.shared, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		db, end, err := p.open()
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(p.size)
		db.SetMaxIdleConns(p.size)
		db.SetConnMaxIdleTime(p.idle)
		p.own, p.end = db, end
	}
	return p.own, nil
}

// BusyError says that a context ended before a connection was free. It matches
// driver.ErrUnavailable and the cause.
type BusyError struct {
	use   string
	cause error
}

func (e *BusyError) Error() string { return driver.ErrUnavailable.Error() + ": " + e.use }

func (e *BusyError) Unwrap() []error { return []error{driver.ErrUnavailable, e.cause} }

// ifBusy unwraps the [BusyError] in err, if any, because its wrappers only
// repeat that a context has ended. If the caller's ctx has not ended, the
// result must not match a context error, so ifBusy drops the cause of the
// BusyError.
func ifBusy(ctx context.Context, err error) error {
	busy := new(BusyError)
	if !errors.As(err, &busy) {
		return err
	}
	if ctx.Err() == nil {
		return fmt.Errorf("%w: %s", driver.ErrUnavailable, busy.use)
	}
	return busy
}

// Busy returns a [BusyError] if err says that a context ended and all
// connections of the program's *sql.DB are in use. It returns any other err
// unchanged.
func (p *Pool) Busy(err error) error {
	if p.shared == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	s := p.shared.Stats()
	if s.MaxOpenConnections == 0 || s.InUse < s.MaxOpenConnections {
		return err
	}
	return &BusyError{fmt.Sprintf("all %d connections of the *sql.DB are in use: end transactions and close rows sooner, "+
		"or allow more with SetMaxOpenConns", s.MaxOpenConnections), err}
}

// Enter waits for a slot; leave returns it. It implements [Store.Enter].
func (p *Pool) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.slots <- struct{}{}:
		leave = func() { <-p.slots }
		if err := p.awaitShared(ctx); err != nil {
			leave()
			return nil, err
		}
		return leave, nil
	case <-ctx.Done():
		of := "connections of the session for calls were in use: raise max_connections"
		if p.shared != nil {
			of = "connections of the *sql.DB that the session keeps for calls were in use: raise SetMaxOpenConns"
		}
		return nil, &BusyError{fmt.Sprintf("all %d %s, or make fewer calls at once", cap(p.slots), of), ctx.Err()}
	}
}

// awaitShared waits while all connections of the program's *sql.DB are in use. A
// request would hold its slot meanwhile, even if its caller has left.
func (p *Pool) awaitShared(ctx context.Context) error {
	if p.shared == nil {
		return nil
	}
	if s := p.shared.Stats(); s.MaxOpenConnections == 0 || s.InUse < s.MaxOpenConnections {
		return nil
	}
	conn, err := p.shared.Conn(ctx)
	if err != nil {
		return p.Busy(err)
	}
	return conn.Close()
}

// CloseSilent closes idle connections that do not reply before ctx ends.
func (p *Pool) CloseSilent(ctx context.Context) {
	db, err := p.DB()
	if err != nil {
		return
	}
	var all sync.WaitGroup
	for range db.Stats().Idle {
		all.Go(func() { // concurrent pings, so that each takes another connection
			if conn, err := db.Conn(ctx); err == nil {
				_ = conn.PingContext(ctx) // closes the connection if there is no answer
				_ = conn.Close()
			}
		})
	}
	all.Wait()
}

// Close closes the session's own connections.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		return nil
	}
	err := p.own.Close()
	p.end()
	p.own = nil
	return err
}
