package mysql

import (
	"context"
	"database/sql"
	"net"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// pool has the connections of one session. A session that was made by a DSN has its
// own connections, and closes them.
type pool struct {
	shared *sql.DB // of NewConnector
	config *mysql.Config
	size   int
	slots  chan struct{} // for changes: heartbeats, looks and clean-ups need no slot

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
	p := &pool{shared: c.db, size: n, slots: make(chan struct{}, n-2)}
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
	p.config = config
	return p, nil
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
		p.own = sql.OpenDB(c)
		p.own.SetMaxOpenConns(p.size)
		p.own.SetMaxIdleConns(p.size)
		p.own.SetConnMaxIdleTime(time.Minute)
	}
	return p.own, nil
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
