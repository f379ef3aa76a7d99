package mysql

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/mysqltest"
)

const conformanceTimeout = time.Second

func TestConformance(t *testing.T) {
	dlocktest.Run(t, conformance(newCase))
}

func conformance(newStore func(t *testing.T) driver.Connector) dlocktest.Config {
	c := sqltest.Conformance(newStore, conformanceTimeout, sqltest.ByHandTexts{
		End:         "CALL dlock_end(?)",
		RemoveQueue: []string{"DELETE FROM dlock_node WHERE queue = ?", "DELETE FROM dlock_queue WHERE name = ?"},
		RemoveNode:  "DELETE FROM dlock_node WHERE queue = ? AND name = ?",
		PutNode:     "INSERT INTO dlock_node (queue, name, data) VALUES (?, ?, ?)",
	})
	c.NewLossy = func(t *testing.T) (driver.Connector, func()) {
		c := newCaseWith(t, "empty_is_new=false")
		return c, func() { c.server.SQL(t, "", "DROP DATABASE "+c.database+"; CREATE DATABASE "+c.database) }
	}
	return c
}

type caseStore struct {
	sqltest.Store
	t        *testing.T
	server   *mysqltest.Server
	database string
	params   []string
}

var newSession = sqltest.NewSession

func newCase(t *testing.T) driver.Connector { return newCaseWith(t) }

func newCaseWith(t *testing.T, params ...string) *caseStore {
	return newCaseOn(t, mysqltest.Shared(t), params...)
}

func newCaseOn(t *testing.T, server *mysqltest.Server, params ...string) *caseStore {
	c := &caseStore{t: t, server: server, database: server.Database()}
	c.params = append([]string{"session_timeout=" + conformanceTimeout.String()}, params...)
	c.Store = sqltest.Store{
		Addr: server.Addr(), Admin: openDB(t, server, c.database),
		Begin: func(ctx context.Context, dial sqltest.Dial, wrap func(session.Store) session.Store) (*session.Session, error) {
			inner := c.connector()
			inner.config.DialFunc = dial
			st := newStore(inner)
			return inner.begin(ctx, st, wrap(st))
		},
		Connector: func() driver.Connector { return c.connector() },
		Late: func(id string) sqlstore.Store {
			st := newStore(c.connector())
			st.id = id
			return st
		},
	}
	return c
}

func (c *caseStore) connector() *connector {
	inner, err := Driver{}.OpenConnector(c.server.DSN(c.database, c.params...))
	assert.NoError(c.t, err)
	return inner.(*connector)
}
