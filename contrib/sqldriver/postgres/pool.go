package postgres

import (
	"context"
	"database/sql"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// pool has the connections of one session. A session that was made by a DSN has its
// own connections, and closes them.
type pool struct {
	connector *connector
	slots     chan struct{} // for calls: heartbeats, notices, looks and clean-ups need no slot

	mu    sync.Mutex
	own   *sql.DB // nil before the first use and after Close
	links *links
}

func newPool(c *connector) *pool {
	n := c.options.connections
	if c.db != nil {
		n = c.db.Stats().MaxOpenConnections
	}
	if n <= 0 {
		n = defaults().connections
	}
	return &pool{connector: c, slots: make(chan struct{}, n-2)}
}

// db returns the database. It opens the pool again if it was closed.
func (p *pool) db() *sql.DB {
	if p.connector.db != nil {
		return p.connector.db
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		p.links = newLinks(p.connector.config.DialFunc)
		config := p.connector.config.Copy()
		config.DialFunc = p.links.dial
		p.own = open(config)
		p.own.SetMaxOpenConns(p.connector.options.connections)
		p.own.SetMaxIdleConns(p.connector.options.connections)
		p.own.SetConnMaxIdleTime(time.Minute)
	}
	return p.own
}

func open(config *pgx.ConnConfig) *sql.DB { return sql.OpenDB(stdlib.GetConnector(*config)) }

// enter waits for a slot.
func (p *pool) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close closes the connections of the session. After that, no goroutine of pgx uses one
// of them any more: see links.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own == nil {
		return nil
	}
	err := p.own.Close()
	p.links.close()
	p.own = nil
	return err
}

// links are the network connections of a pool. If a context ends during a statement,
// pgx closes the connection on a goroutine, which may wait for the server. Closing
// the links ends that goroutine.
type links struct {
	dialer func(ctx context.Context, network, addr string) (net.Conn, error)
	life   context.Context
	end    context.CancelFunc

	mu     sync.Mutex
	open   map[*link]bool
	closed bool
}

type link struct {
	net.Conn
	links *links
}

func newLinks(dialer func(ctx context.Context, network, addr string) (net.Conn, error)) *links {
	l := &links{dialer: dialer, open: make(map[*link]bool)}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

func (l *links) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()
	conn, err := l.dialer(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c := &link{conn, l}
	l.open[c] = true
	return c, nil
}

func (c *link) Close() error {
	c.links.mu.Lock()
	delete(c.links.open, c)
	c.links.mu.Unlock()
	return c.Conn.Close()
}

func (l *links) close() {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.open {
		_ = c.Conn.Close()
	}
	clear(l.open)
}
