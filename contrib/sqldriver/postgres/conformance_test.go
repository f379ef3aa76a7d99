package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/pgtest"
)

// With 1 s, a slow machine could not open connections in time for heartbeats.
const conformanceTimeout = 2 * time.Second

func TestConformance(t *testing.T) {
	dlocktest.Run(t, conformance(newCase))
}

func conformance(newStore func(t *testing.T) driver.Connector) dlocktest.Config {
	c := sqltest.Conformance(newStore, conformanceTimeout, sqltest.ByHandTexts{
		End:         "SELECT dlock.end_session($1)",
		RemoveQueue: []string{"DELETE FROM dlock.node WHERE queue = $1", "DELETE FROM dlock.queue WHERE name = $1"},
		RemoveNode:  "DELETE FROM dlock.node WHERE queue = $1 AND name = $2",
		PutNode:     "INSERT INTO dlock.node (queue, name, data) VALUES ($1, $2, $3)",
	})
	c.NewLossy = func(t *testing.T) (driver.Connector, func()) {
		c := newCaseWith(t, "empty_is_new=false")
		return c, func() { c.server.SQL(t, "DROP SCHEMA IF EXISTS "+c.schema+" CASCADE") }
	}
	return c
}

type caseStore struct {
	sqltest.Store
	t      *testing.T
	server *pgtest.Server
	schema string
	params []string
}

func openDB(t *testing.T, server *pgtest.Server) *sql.DB {
	db, err := sql.Open("pgx", server.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

var newSession = sqltest.NewSession

func newCase(t *testing.T) driver.Connector { return newCaseWith(t) }

func newCaseWith(t *testing.T, params ...string) *caseStore {
	return newCaseOn(t, pgtest.Shared(t), params...)
}

func newCaseOn(t *testing.T, server *pgtest.Server, params ...string) *caseStore {
	db := openDB(t, server)
	c := &caseStore{t: t, server: server, schema: server.Schema()}
	c.params = append([]string{"session_timeout=" + conformanceTimeout.String(), "schema=" + c.schema}, params...)
	c.Store = sqltest.Store{
		Addr: server.Addr(), Notices: "LISTEN ", Admin: db,
		Begin: func(ctx context.Context, dial sqltest.Dial, wrap func(session.Store) session.Store) (*session.Session, error) {
			inner := c.connector()
			inner.config.DialFunc = pgconn.DialFunc(dial)
			st := newStore(inner)
			return inner.begin(ctx, st, wrap(st))
		},
		Connector: func() driver.Connector { return c.connector() },
		Late: func(id string) sqlstore.Store {
			st := newStore(c.connector())
			st.id = id
			return st
		},
		Own: func(text string) string { return inSchema(text, c.schema) },
	}
	return c
}

func (c *caseStore) connector() *connector {
	inner, err := Driver{}.OpenConnector(c.server.DSN(c.params...))
	assert.NoError(c.t, err)
	return inner.(*connector)
}
