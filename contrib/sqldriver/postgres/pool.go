package postgres

import (
	"context"
	"database/sql"
	"net"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver/dsn"
)

// newPool returns a pool that calls unconfirmed if the server reports success
// although the wait for a standby was cancelled.
func newPool(c *connector, unconfirmed func()) (pool *sqlstore.Pool) {
	pool = sqlstore.NewPool(c.db, c.options.Connections, c.options.Timeout, func() (*sql.DB, func(), error) {
		links := &links{dialer: c.config.DialFunc, open: make(map[*link]bool)}
		links.life, links.end = context.WithCancel(context.Background())
		config := c.config.Copy()
		config.DialFunc = links.dial
		if pool.Observing {
			config.ValidateConnect = nil
		}
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			if n.Routine == "SyncRepWaitForLSN" { // the text may be in any language
				unconfirmed()
			}
		}
		return sql.OpenDB(stdlib.GetConnector(*config, stdlib.OptionBeforeConnect(c.options.refresh))), links.close, nil
	})
	return pool
}

// refresh reads the password and the certificates for a new connection.
func (o *options) refresh(ctx context.Context, config *pgx.ConnConfig) error {
	fresh, err := o.reload()
	if err != nil {
		return &dsn.FileError{Err: err}
	}
	config.Password, config.TLSConfig, config.Fallbacks = fresh.Password, fresh.TLSConfig, fresh.Fallbacks
	if o.secret.Changes() {
		config.Password, err = o.secret.Read(ctx)
	}
	return err
}

// links closes all network connections at once, because pgx closes some in the
// background.
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
