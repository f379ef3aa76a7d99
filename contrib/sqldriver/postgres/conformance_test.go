package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/hooks"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/plant"
)

// With 1 s, a heartbeat would fail after 250 ms, and on a small machine a few new
// connections at once take as long.
const conformanceTimeout = 2 * time.Second

func TestConformance(t *testing.T) {
	dlocktest.Run(t, conformance(newCase))
}

func conformance(newStore func(t *testing.T) driver.Connector) dlocktest.Config {
	c := dlocktest.Config{
		New: newStore,
		// No store is near a roll-over, because the counter that all queues
		// share lasts for 9 * 10^18 nodes.
		NewNearRollOver: newStore,
		NewLossy: func(t *testing.T) (driver.Connector, func()) {
			c := newCaseWith(t, "empty_is_new=false")
			return c, func() { c.server.SQL(t, "DROP SCHEMA IF EXISTS "+c.schema+" CASCADE") }
		},
		SessionTimeout: conformanceTimeout,
		Timeout:        plant.CaseTimeout(),
		Parallel:       4,
		Complete:       true,
		Abilities:      []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityReleased, dlocktest.AbilityCheck},
		Drop: func(t *testing.T, s driver.Session) {
			cs := s.(*caseSession)
			cs.store.exec(t, "SELECT dlock.end_session($1)", cs.ID())
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			c.(*caseStore).exec(t, "DELETE FROM dlock.node WHERE queue = $1", queue)
			c.(*caseStore).exec(t, "DELETE FROM dlock.queue WHERE name = $1", queue)
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			c.(*caseStore).exec(t, "DELETE FROM dlock.node WHERE queue = $1 AND name = $2", queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			c.(*caseStore).exec(t, "INSERT INTO dlock.node (queue, name, data) VALUES ($1, $2, $3)", queue, name, data)
		},
	}
	hooks.Set(&c, func(s driver.Session) *hooks.Network { return s.(*caseSession).network }, func(t *testing.T, s driver.Session) session.Store {
		cs := s.(*caseSession)
		late := cs.store.open(cs.ID())
		t.Cleanup(late.Close)
		return late
	})
	return c
}

type caseStore struct {
	t      *testing.T
	server *pgtest.Server
	schema string
	params []string
	admin  *sql.DB

	outages bool // the test sometimes kills the server, so exec ignores errors
}

type caseSession struct {
	*session.Session
	store    *caseStore
	requests *hooks.Requests
	network  *hooks.Network
}

func newSession(t *testing.T, c *caseStore) *caseSession {
	t.Helper()
	s, err := c.Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s.(*caseSession)
}

func newCase(t *testing.T) driver.Connector { return newCaseWith(t) }

func newCaseWith(t *testing.T, params ...string) *caseStore {
	return newCaseOn(t, pgtest.Shared(t), params...)
}

func newCaseOn(t *testing.T, server *pgtest.Server, params ...string) *caseStore {
	c := &caseStore{t: t, server: server, schema: server.Schema()}
	c.params = append([]string{"session_timeout=" + conformanceTimeout.String(), "schema=" + c.schema}, params...)
	db, err := sql.Open("pgx", server.DSN())
	require.NoError(t, err)
	c.admin = db
	t.Cleanup(func() { db.Close() })
	return c
}

func (c *caseStore) Connect(ctx context.Context) (driver.Session, error) {
	network, err := hooks.NewNetwork(c.server.Addr(), "LISTEN ")
	if err != nil {
		return nil, err
	}
	inner := c.connector()
	cs := &caseSession{store: c, network: network}
	inner.config.DialFunc = network.Dial
	if cs.Session, cs.requests, err = connectIntercepted(ctx, inner); err != nil {
		network.Close()
		return nil, err
	}
	return cs, nil
}

// ID returns the id of the session in the database.
func (s *caseSession) ID() string { return s.Describe().ID }

func (s *caseSession) Close() error {
	err := s.Session.Close()
	s.network.Close()
	return err
}

// Check implements driver.Checker. It connects without fault injection.
func (c *caseStore) Check(ctx context.Context) ([]driver.Finding, error) {
	return c.connector().Check(ctx)
}

func (c *caseStore) connector() *connector {
	inner, err := Driver{}.OpenConnector(c.server.DSN(c.params...))
	assert.NoError(c.t, err)
	return inner.(*connector)
}

// open returns another store for a session.
func (c *caseStore) open(id string) sqlstore.Store {
	st := newStore(c.connector())
	st.id = id
	return st
}

func connectIntercepted(ctx context.Context, c *connector) (*session.Session, *hooks.Requests, error) {
	st := newStore(c)
	requests := hooks.Wrap(st)
	s, err := c.begin(ctx, st, requests)
	return s, requests, err
}

func (c *caseStore) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := c.admin.Exec(inSchema(text, c.schema), args...); err != nil && !c.outages {
		t.Fatal(err)
	}
}
