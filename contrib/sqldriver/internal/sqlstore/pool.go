package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
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
	silent time.Duration // how long a connection may take to answer a ping
	Host   session.Host  // set by Start
	// Observing is set for a session that is to change nothing: see driver.Observer.
	Observing bool
	longest   time.Duration // set by Graced

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
	return &Pool{shared: shared, open: open, size: connections, idle: min(timeout/4, time.Minute), silent: timeout / 16}
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

// BusyError says that a context ended before a connection was free, and matches
// driver.ErrUnavailable and the cause, or that there will be no connection.
type BusyError struct {
	text    string
	matches []error
}

func (e *BusyError) Error() string { return e.text }

func (e *BusyError) Unwrap() []error { return e.matches }

// Busy returns a [BusyError] if err says that a context ended and all
// connections of the program's *sql.DB are in use, or that the program has closed
// it. It returns any other err unchanged.
func (p *Pool) Busy(err error) error {
	if err != nil && p.shared != nil && err.Error() == "sql: database is closed" {
		return &BusyError{"the program has closed the *sql.DB", []error{err}}
	}
	if p.shared == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	s := p.shared.Stats()
	if s.MaxOpenConnections == 0 || s.InUse < s.MaxOpenConnections {
		return err
	}
	return &BusyError{fmt.Sprintf("%v: all %d connections of the *sql.DB are in use: end transactions and close rows sooner, "+
		"or allow more with SetMaxOpenConns", driver.ErrUnavailable, s.MaxOpenConnections), []error{driver.ErrUnavailable, err}}
}

// Slots returns how many requests may be made at once for callers, and how to
// allow more. Heartbeats and other background requests share two connections.
func (p *Pool) Slots() (n int, more string) {
	if p.shared != nil {
		return p.size - 2, "raise SetMaxOpenConns of the *sql.DB, or make fewer calls at once"
	}
	return p.size - 2, "raise max_connections, or make fewer calls at once"
}

// Observes is used by [Connect].
func (p *Pool) Observes() bool { return p.Observing }

// Admit implements [session.Admitter]. It waits while all connections of the
// program's *sql.DB are in use.
func (p *Pool) Admit(ctx context.Context) error {
	if p.shared == nil {
		return nil
	}
	if s := p.shared.Stats(); s.MaxOpenConnections == 0 || s.InUse < s.MaxOpenConnections {
		return nil
	}
	conn, err := p.shared.Conn(ctx)
	if err == nil {
		return conn.Close()
	}
	if err = p.Busy(err); !errors.Is(err, driver.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

// Start implements [session.Starter].
func (p *Pool) Start(h session.Host) { p.Host = h }

// Known returns the error of a request whose answer says whether it knows the
// session. A session that observes is in no database, which perhaps has no tables.
func (p *Pool) Known(known bool, err error, missing func(error) bool) error {
	switch {
	case !p.Observing:
		return IfKnown(known, err)
	case missing(err):
		return nil
	}
	return err
}

// Beaten is called after each heartbeat, with its context and error. It returns
// [ErrUnknownSession] if the tables are missing. If there was no answer in time,
// it closes the idle connections that do not reply: a firewall may have dropped
// the open connections, and later heartbeats must not pick them.
func (p *Pool) Beaten(ctx context.Context, err error, missing func(error) bool) error {
	if missing(err) {
		return fmt.Errorf("%w: %w", ErrUnknownSession, err)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p.Host.Go(p.closeSilent)
	}
	return err
}

func (p *Pool) closeSilent(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.silent)
	defer cancel()
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
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		return
	}
	_ = p.own.Close() // an error leaves nothing to be done
	p.end()
	p.own = nil
}
