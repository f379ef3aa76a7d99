package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func init() { dlock.Register("postgres", Driver{}) }

// Driver implements [driver.Driver] for PostgreSQL databases. It is registered
// as "postgres".
type Driver struct {
	// Password, if not nil, returns the password for each new connection, such
	// as a cloud service's token. The data source name must then have none.
	Password func(ctx context.Context) (string, error)
}

// OpenConnector parses a data source name, described in the package
// documentation.
func (d Driver) OpenConnector(dsn string) (driver.Connector, error) {
	config, o, err := parseDSN(dsn, d.Password)
	if err != nil {
		return nil, err
	}
	return &connector{config: config, options: o}, nil
}

// Options are the settings for [NewConnector]. A zero field means the default,
// which is the same as in a data source name.
type Options struct {
	// SessionTimeout is how long the database keeps a session without
	// heartbeats: 500 ms to one hour. Zero means 10 s.
	SessionTimeout time.Duration
	// Schema is the schema of the tables, "dlock" by default.
	Schema string
	// Grace is how long no lock is granted after a fail-over: 500 ms to one
	// hour, and at least SessionTimeout, which is the default. See the package
	// documentation.
	Grace time.Duration
	// EmptyIsNew skips the grace if the schema has had no sessions. Set it only
	// in tests, because a schema that has lost its data looks the same.
	EmptyIsNew bool
	// NoNotify makes sessions poll instead of using LISTEN.
	NoNotify bool
}

// NewConnector returns a connector that borrows connections from db. The caller
// must keep db open until all sessions are closed, and then close it.
//
// The driver of db must be package stdlib of pgx/v5, and db needs at least
// three connections per session. A session that waits for a lock keeps one
// connection for LISTEN and heartbeats. A request that takes or releases a lock
// uses another one until its statement ends. While the program keeps all
// connections busy, heartbeats wait, sessions may end, and calls return errors
// that say so.
//
// NewConnector does no I/O. It returns an error if an option is invalid.
func NewConnector(db *sql.DB, options Options) (driver.Connector, error) {
	o := defaults()
	o.notify = !options.NoNotify
	if db == nil {
		return nil, errors.New("postgres: the database is nil")
	}
	if options.Schema != "" {
		if err := o.parameters()["schema"](options.Schema); err != nil {
			return nil, fmt.Errorf("postgres: Options.Schema: %w", err)
		}
	}
	if err := o.Set(options.SessionTimeout, options.Grace, options.EmptyIsNew); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &connector{db: db, options: o}, nil
}

// connector has the config of a data source name, or NewConnector's db.
type connector struct {
	config  *pgx.ConnConfig
	db      *sql.DB
	options options
	trust   session.Trust
	graces  sync.Once // warns once of clients with a longer grace
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	st := newStore(c)
	return c.trust.Result(c.begin(ctx, st, st))
}

// Observe implements [driver.Observer]. It also works on a standby.
func (c *connector) Observe(ctx context.Context) (driver.Session, error) {
	st := newStore(c)
	st.id, st.Observing = "", true
	return c.trust.Result(c.begin(ctx, st, st))
}

// begin begins a session that uses the store via: st itself, except in tests.
func (c *connector) begin(ctx context.Context, st *store, via session.Store) (*session.Session, error) {
	return sqlstore.Connect(ctx, st, via, session.Config{Name: "postgres", ID: st.id, Timeout: c.options.Timeout, Server: c.server})
}

// Format keeps the password out of the output of every verb.
func (c *connector) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "postgres connector of "+c.server())
}

func (c *connector) server() string {
	if c.config == nil {
		return "*sql.DB"
	}
	return fmt.Sprintf("%s:%d/%s", c.config.Host, c.config.Port, c.config.Database)
}
