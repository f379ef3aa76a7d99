package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func init() { dlock.Register("mysql", Driver{}) }

// Driver implements [driver.Driver] for MySQL and MariaDB. It is registered as
// "mysql".
type Driver struct {
	// Password, if not nil, returns the password for each new connection, such
	// as a cloud service's token. The data source name must then have none.
	Password func(ctx context.Context) (string, error)
}

// OpenConnector parses a data source name, described in the package
// documentation. It does no I/O: sessions read the password and TLS files.
func (d Driver) OpenConnector(dsn string) (driver.Connector, error) {
	config, o, err := parseDSN(dsn, d.Password)
	if err != nil {
		return nil, err
	}
	return &connector{config: config, options: o}, nil
}

// Options are the settings for [NewConnector]. A zero field means its default.
type Options struct {
	// SessionTimeout is how long the database keeps a session without
	// heartbeats: 500 ms to one hour. Zero means 10 s.
	SessionTimeout time.Duration
	// Database is the database that contains the driver's tables. If empty,
	// each new session uses the default database of its first connection.
	Database string
	// Grace is how long no lock is granted after a restart or a fail-over: 500 ms
	// to one hour, and at least SessionTimeout, which is the default. See the
	// package documentation.
	Grace time.Duration
	// EmptyIsNew skips the grace if the tables have had no sessions. Set it only
	// in tests, because tables that have lost their data look the same.
	EmptyIsNew bool
}

// NewConnector returns a connector that borrows connections from db. The caller
// must keep db open until all sessions are closed, and then close it.
//
// A session takes a connection for one statement at a time, and returns it
// without an open transaction. The data source name of db needs no special
// parameters. db must meet these conditions:
//
//   - The driver of db is github.com/go-sql-driver/mysql, or a wrapper that
//     returns its errors.
//   - db has at least three connections per session. While the program keeps
//     all of them busy, heartbeats wait, sessions may end, and calls return
//     errors that say so.
//   - The program leaves no transaction open on a connection. Otherwise
//     statements of sessions fail there, and the transaction stays open.
//   - No connection sets the variable timestamp, because it overrides the
//     server's clock.
//
// NewConnector does no I/O. It returns an error if an option is invalid.
func NewConnector(db *sql.DB, options Options) (driver.Connector, error) {
	o := defaults()
	if db == nil {
		return nil, errors.New("mysql: the database is nil")
	}
	if err := o.Set(options.SessionTimeout, options.Grace, options.EmptyIsNew); err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	if len(options.Database) > maxDatabase {
		return nil, fmt.Errorf("mysql: Options.Database is longer than %d bytes", maxDatabase)
	}
	return &connector{db: db, options: o, database: options.Database}, nil
}

type connector struct {
	config   *mysql.Config // nil if made by NewConnector
	db       *sql.DB       // nil if made from a data source name
	options  options
	database string // Options.Database of NewConnector
	trust    session.Trust

	graces sync.Once // warns once about clients with a longer grace

	warning sync.Mutex
	warned  bool // warnings about the server's settings were logged
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	st := newStore(c)
	return c.trust.Result(c.begin(ctx, st, st))
}

// Observe implements [driver.Observer]. It also works on a replica.
func (c *connector) Observe(ctx context.Context) (driver.Session, error) {
	st := newStore(c)
	st.id, st.Observing = "", true
	return c.trust.Result(c.begin(ctx, st, st))
}

// begin begins a session. The argument via is st, or wraps st to inject faults.
func (c *connector) begin(ctx context.Context, st *store, via session.Store) (*session.Session, error) {
	return sqlstore.Connect(ctx, st, via, session.Config{Name: "mysql", ID: st.id, Timeout: c.options.Timeout, Server: c.server, Awaits: true})
}

// Format keeps the password out of the output of every verb.
func (c *connector) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "mysql connector of "+c.server())
}

func (c *connector) server() string {
	if c.config == nil {
		return "*sql.DB"
	}
	return c.config.Addr + "/" + c.config.DBName
}
