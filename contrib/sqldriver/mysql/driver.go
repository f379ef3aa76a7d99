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
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
)

func init() { dlock.Register("mysql", Driver{}) }

// Driver opens stores in MySQL and MariaDB databases. It is registered as "mysql".
type Driver struct{}

// OpenConnector parses a DSN: see the package comment. It reads no file: a wrong file
// of certificates is an error of Connect.
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	config, o, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return &connector{config: config, options: o}, nil
}

// Options are the settings of a connector that [NewConnector] returns. The zero value
// of a field stands for its default.
type Options struct {
	// SessionTimeout is the time for which the database keeps a session that it
	// does not hear from: 500 ms to one hour. Zero means 10 s.
	SessionTimeout time.Duration
	// Database is the name of the database with the tables. If it is empty, a new
	// session asks its first connection for its default database.
	Database string
}

// NewConnector returns a connector that uses the connections of db. The caller keeps
// db open until all sessions are closed, and closes it after that.
//
// The driver of db has to be github.com/go-sql-driver/mysql, or a wrapper around it
// that returns its errors. Its DSN needs no special parameter. The sessions take
// connections for the time of one statement, and leave them without a transaction. If
// the program keeps all connections busy, heartbeats wait, and sessions end. So db
// needs at least three connections for each session.
//
// A connection that the program has left in a transaction is not used: the statement
// fails, and the transaction goes on. No connection may have the session variable
// timestamp set, because it stands for the clock of the server.
//
// NewConnector does no I/O. If an option is not valid, the error says so.
func NewConnector(db *sql.DB, options Options) (driver.Connector, error) {
	o := defaults()
	if db == nil {
		return nil, errors.New("mysql: the database is nil")
	}
	if options.SessionTimeout != 0 {
		if err := o.parameters()["session_timeout"](options.SessionTimeout.String()); err != nil {
			return nil, fmt.Errorf("mysql: Options.SessionTimeout: %w", err)
		}
	}
	if len(options.Database) > maxDatabase {
		return nil, fmt.Errorf("mysql: Options.Database is longer than %d bytes", maxDatabase)
	}
	return &connector{db: db, options: o, database: options.Database}, nil
}

// connector has a config, if it was made from a DSN, or the db that NewConnector was
// given.
type connector struct {
	config   *mysql.Config
	db       *sql.DB
	options  options
	database string // of NewConnector

	warning sync.Mutex
	warned  bool // whether the settings of the server were logged
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	if err := session.CheckConnections(c.db); err != nil {
		return nil, fmt.Errorf("mysql: connect: %w", err)
	}
	st, err := newStore(c)
	if err != nil {
		return nil, fmt.Errorf("mysql: connect: %w", err)
	}
	s, err := session.Connect(ctx, "mysql", st, c.options.timeout)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Format writes the connector without its password, for every verb.
func (c *connector) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "mysql connector of "+c.server())
}

// server returns the address of the database.
func (c *connector) server() string {
	if c.config == nil {
		return "*sql.DB"
	}
	return c.config.Addr + "/" + c.config.DBName
}
