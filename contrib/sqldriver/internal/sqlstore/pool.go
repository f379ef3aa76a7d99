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
	// MinConnections is how many connections a session needs: one each for
	// changes, heartbeats, and notices or polling.
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
	idle   time.Duration // how long own connections may stay idle
	silent time.Duration // how long a ping may take
	Host   session.Host  // set by Start
	// Observing is true for a session that changes nothing.
	Observing bool
	longest   time.Duration // longest grace of all sessions; set by Graced

	mu  sync.Mutex
	own *sql.DB // guarded by mu; nil unless open
	end func()  // guarded by mu
}

// NewPool returns a pool that borrows connections from shared. If shared is
// nil, the pool opens a database of its own with at most the given number of
// connections. It closes connections that are idle for a quarter of the session
// timeout, at most a minute. Close closes the database and then calls the
// function end.
func NewPool(shared *sql.DB, connections int, timeout time.Duration, open func() (db *sql.DB, end func(), err error)) *Pool {
	if shared != nil {
		connections = shared.Stats().MaxOpenConnections
	}
	if connections <= 0 {
		connections = DefaultConnections
	}
	return &Pool{shared: shared, open: open, size: connections, idle: min(timeout/4, time.Minute), silent: timeout / 16}
}

// Enough returns an error if the program's *sql.DB allows too few connections for
// a session.
func (p *Pool) Enough() error {
	if n := p.size; p.shared != nil && n < MinConnections {
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

// BusyError says that all connections were in use until a context ended, or
// that the program closed its *sql.DB. Only the former matches
// driver.ErrUnavailable.
type BusyError struct {
	text    string
	matches []error
}

func (e *BusyError) Error() string { return e.text }

func (e *BusyError) Unwrap() []error { return e.matches }

// Busy returns a [BusyError] if the program has closed its *sql.DB, or if a
// context has ended and all connections of the *sql.DB are in use. Otherwise it
// returns err unchanged.
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

// Slots returns how many requests of callers may run at once, and advice on how
// to allow more. Two connections are left for heartbeats and background work.
func (p *Pool) Slots() (n int, more string) {
	if p.shared != nil {
		return p.size - 2, "raise SetMaxOpenConns of the *sql.DB, or make fewer calls at once"
	}
	return p.size - 2, "raise max_connections, or make fewer calls at once"
}

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

// Known returns the error of a request, or [ErrUnknownSession] if the request
// did not find the session (known is false). If the session only observes,
// Known ignores that the session or the tables are missing.
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
// [ErrUnknownSession] if the tables are missing. If the heartbeat timed out,
// Beaten closes the idle connections that do not answer a ping, because a
// firewall may have dropped them and later heartbeats would use them.
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
		all.Go(func() { // concurrent, so that no connection is pinged twice
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
	_ = p.own.Close() // nothing can be done about an error
	p.end()
	p.own = nil
}
