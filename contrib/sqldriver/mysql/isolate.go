package mysql

import (
	"context"
	"database/sql"

	"github.com/dlock-go/dlock/driver"
)

// Isolate implements [driver.Isolator] with a separate database, which the user
// must be allowed to create.
func (c *connector) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	name := "dlock_" + i.Name
	part := &isolated{connector{db: c.db, options: c.options, database: name, warned: true}, c, name}
	part.options.emptyNew = true
	if i.SessionTimeout > 0 {
		part.options.timeout, part.options.grace = i.SessionTimeout, 0
	}
	if c.config != nil {
		part.config = c.config.Clone()
		part.config.DBName = name
		if i.Dial != nil {
			part.config.DialFunc = i.Dial
		}
	}
	return part, func(ctx context.Context) error { return c.run(ctx, "DROP DATABASE IF EXISTS "+quote(name)) }, nil
}

// isolated is a connector to a separate database, which Connect creates through
// whole.
type isolated struct {
	connector
	whole *connector
	name  string
}

// Connect implements driver.Connector.
func (c *isolated) Connect(ctx context.Context) (driver.Session, error) {
	if err := c.whole.run(ctx, "CREATE DATABASE IF NOT EXISTS "+quote(c.name)); err != nil {
		return nil, err
	}
	return c.connector.Connect(ctx)
}

// run executes one statement on a new connection.
func (c *connector) run(ctx context.Context, text string) error {
	s, err := newStore(c)
	if err != nil {
		return err
	}
	defer s.Close()
	return markError(ctx, s.use(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, text)
		return err
	}))
}
