package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
)

// pool has the connections of one session. A session that was made by a DSN has its
// own connections, and closes them.
type pool struct {
	shared  *sql.DB // of NewConnector
	config  *mysql.Config
	timeout time.Duration // the session timeout
	size    int
	slots   chan struct{} // for calls: heartbeats, looks and clean-ups need no slot

	mu  sync.Mutex
	own *sql.DB // nil before the first use and after Close
}

func newPool(c *connector) (*pool, error) {
	n := c.options.connections
	if c.db != nil {
		n = c.db.Stats().MaxOpenConnections
	}
	if n <= 0 {
		n = defaults().connections
	}
	p := &pool{shared: c.db, timeout: c.options.timeout, size: n, slots: make(chan struct{}, n-2)}
	if c.db != nil {
		return p, nil
	}
	config := c.config.Clone()
	host, _, _ := net.SplitHostPort(config.Addr)
	files, err := c.options.loadTLS(host)
	if err != nil {
		return nil, err
	}
	if files != nil {
		config.TLS = files
	}
	config.Params = lockWaits(c.options.timeout)
	p.config = config
	return p, nil
}

// lockWaits returns the limits for locks on the connections of a session. The server
// does not notice that a client has given up a request. Without limits, the server
// keeps a request that waits for a lock, with its thread, for 50 seconds or for a day,
// and carries it out if it gets the lock.
func lockWaits(timeout time.Duration) map[string]string {
	limits := make(map[string]string)
	for _, name := range []string{"innodb_lock_wait_timeout", "lock_wait_timeout"} {
		limits[name] = fmt.Sprintf("LEAST(@@%s, %d)", name, session.Limit(timeout)/time.Second)
	}
	return limits
}

// db returns the database. It opens the pool again if it was closed.
func (p *pool) db() (*sql.DB, error) {
	if p.shared != nil {
		return p.shared, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		c, err := mysql.NewConnector(p.config)
		if err != nil {
			return nil, err
		}
		p.own = sql.OpenDB(greeter{c, p.config.Addr, session.ConnectLimit(p.timeout)})
		p.own.SetMaxOpenConns(p.size)
		p.own.SetMaxIdleConns(p.size)
		p.own.SetConnMaxIdleTime(time.Minute)
	}
	return p.own, nil
}

// greeter makes the connections of a pool. The errors of go-sql-driver/mysql name the
// server only if the dial fails, so greeter names it in every other error.
type greeter struct {
	sqldriver.Connector
	addr  string
	limit time.Duration
}

// Connect implements driver.Connector of database/sql.
func (g greeter) Connect(ctx context.Context) (sqldriver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.limit)
	defer cancel()
	conn, err := g.Connector.Connect(ctx)
	switch {
	case err == nil:
		return conn, nil
	case dialFailed(err):
		return nil, err
	case ctx.Err() != nil && number(err) == 0:
		return nil, fmt.Errorf("no answer from %s in the handshake: %w", g.addr, err)
	}
	return nil, fmt.Errorf("handshake with %s: %w", g.addr, err)
}

// enter waits for a slot.
func (p *pool) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close closes the connections of the session.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		return nil
	}
	err := p.own.Close()
	p.own = nil
	return err
}
