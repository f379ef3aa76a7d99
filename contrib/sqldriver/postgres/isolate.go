package postgres

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Isolate implements [driver.Isolator] with a separate schema, which the user
// must be allowed to create.
func (c *connector) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	part := &connector{db: c.db, options: c.options}
	part.options.schema, part.options.emptyNew = "dlock_"+i.Name, true
	if i.SessionTimeout > 0 {
		part.options.timeout, part.options.grace = i.SessionTimeout, 0
	}
	if c.config != nil {
		part.config = c.config.Copy()
		if i.Dial != nil {
			part.config.DialFunc = i.Dial
		}
	}
	remove := func(ctx context.Context) error {
		s := newStore(c)
		defer s.Close()
		db, err := s.pool.DB()
		if err == nil {
			_, err = db.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+part.options.schema+" CASCADE")
		}
		return markError(ctx, err)
	}
	return part, remove, nil
}
