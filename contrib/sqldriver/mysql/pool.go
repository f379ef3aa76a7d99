package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
)

func configOf(c *connector) *mysql.Config {
	config := c.config.Clone()
	config.Params = lockWaits(c.options.Timeout)
	config.Params["sql_safe_updates"] = "0"                  // otherwise the server would refuse some deletions
	_ = config.Apply(mysql.BeforeConnect(c.options.refresh)) // it never fails
	return config
}

// refresh reads the password and the TLS files for a new connection.
func (o *options) refresh(ctx context.Context, config *mysql.Config) error {
	host, _, _ := net.SplitHostPort(config.Addr)
	files, err := o.loadTLS(host)
	if err != nil {
		return err
	}
	if files != nil {
		config.TLS = files
	}
	if o.secret.Changes() {
		config.Passwd, err = o.secret.Read(ctx)
	}
	return err
}

func (s *store) open() (*sql.DB, func(), error) {
	c, err := mysql.NewConnector(s.config)
	if err != nil {
		return nil, nil, err
	}
	return sql.OpenDB(greeter{c, s.config.Addr, sqlstore.ConnectLimit(s.connector.options.Timeout)}), func() {}, nil
}

// lockWaits limits how long a statement waits for a lock. Otherwise a statement
// abandoned by its client could take effect much later.
func lockWaits(timeout time.Duration) map[string]string {
	limits := make(map[string]string)
	for _, name := range []string{"innodb_lock_wait_timeout", "lock_wait_timeout"} {
		limits[name] = fmt.Sprintf("LEAST(@@%s, %d)", name, sqlstore.Limit(timeout)/time.Second)
	}
	return limits
}

// greeter adds the server's address to errors, because go-sql-driver/mysql does
// so only on dialing.
type greeter struct {
	sqldriver.Connector
	addr  string
	limit time.Duration
}

// Connect implements database/sql/driver.Connector.
func (g greeter) Connect(ctx context.Context) (sqldriver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.limit)
	defer cancel()
	conn, err := g.Connector.Connect(ctx)
	switch {
	case err == nil:
		return conn, nil
	case dialFailed(err), errors.As(err, new(*dsn.FileError)), errors.Is(err, driver.ErrUnavailable): // the last two come from refresh
		return nil, err
	case ctx.Err() != nil && number(err) == 0:
		return nil, fmt.Errorf("no answer from %s in the handshake: %w", g.addr, err)
	}
	return nil, fmt.Errorf("handshake with %s: %w", g.addr, err)
}
