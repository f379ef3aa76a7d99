package mysql

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/hooks"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/plant"
)

const conformanceTimeout = time.Second

func TestConformance(t *testing.T) {
	dlocktest.Run(t, conformance(newCase))
}

func conformance(newStore func(t *testing.T) driver.Connector) dlocktest.Config {
	c := dlocktest.Config{
		New: newStore,
		// Any store will do, because tokens do not reach 18 digits before the
		// year 5138. A token is the time in microseconds since 1970, or the
		// last token plus one if that is higher.
		NewNearRollOver: newStore,
		NewLossy: func(t *testing.T) (driver.Connector, func()) {
			c := newCaseWith(t, "empty_is_new=false")
			return c, func() { c.server.SQL(t, "", "DROP DATABASE "+c.database+"; CREATE DATABASE "+c.database) }
		},
		SessionTimeout: conformanceTimeout,
		Timeout:        plant.CaseTimeout(),
		Parallel:       4,
		Complete:       true,
		Abilities:      []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityReleased, dlocktest.AbilityCheck},
		Drop: func(t *testing.T, s driver.Session) {
			cs := s.(*caseSession)
			cs.store.exec(t, callText(cs.store.database, "dlock_end", []any{cs.ID()}))
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			c.(*caseStore).exec(t, "DELETE FROM dlock_node WHERE queue = ?", queue)
			c.(*caseStore).exec(t, "DELETE FROM dlock_queue WHERE name = ?", queue)
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			c.(*caseStore).exec(t, "DELETE FROM dlock_node WHERE queue = ? AND name = ?", queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			c.(*caseStore).exec(t, "INSERT INTO dlock_node (queue, name, data) VALUES (?, ?, ?)", queue, name, slices.Concat([]byte{}, data))
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
	t        *testing.T
	server   *mysqltest.Server
	database string
	params   []string
	admin    *sql.DB

	outages bool // the test sometimes kills the server, so exec ignores errors
}

type caseSession struct {
	*session.Session
	store    *caseStore
	requests *hooks.Requests
	network  *hooks.Network
}

func newCase(t *testing.T) driver.Connector { return newCaseWith(t) }

func newCaseWith(t *testing.T, params ...string) *caseStore {
	return newCaseOn(t, mysqltest.Shared(t), params...)
}

func newCaseOn(t *testing.T, server *mysqltest.Server, params ...string) *caseStore {
	c := &caseStore{t: t, server: server, database: server.Database()}
	c.params = append([]string{"session_timeout=" + conformanceTimeout.String()}, params...)
	db, err := sql.Open("mysql", server.DSN(c.database))
	require.NoError(t, err)
	c.admin = db
	t.Cleanup(func() { db.Close() })
	return c
}

// Check implements driver.Checker. It connects directly, without faults.
func (c *caseStore) Check(ctx context.Context) ([]driver.Finding, error) {
	return c.connector().Check(ctx)
}

func (c *caseStore) Connect(ctx context.Context) (driver.Session, error) {
	network, err := hooks.NewNetwork(c.server.Addr(), "")
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

func (c *caseStore) connector() *connector {
	inner, err := Driver{}.OpenConnector(c.server.DSN(c.database, c.params...))
	assert.NoError(c.t, err)
	return inner.(*connector)
}

// open returns another store for a session.
func (c *caseStore) open(id string) sqlstore.Store {
	st, err := newStore(c.connector())
	assert.NoError(c.t, err)
	st.id = id
	return st
}

func connectIntercepted(ctx context.Context, c *connector) (*session.Session, *hooks.Requests, error) {
	st, err := newStore(c)
	if err != nil {
		return nil, nil, err
	}
	requests := hooks.Wrap(st)
	s, err := c.begin(ctx, st, requests)
	return s, requests, err
}

func (c *caseStore) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := c.admin.Exec(text, args...); err != nil && !c.outages {
		t.Fatal(err)
	}
}

// ID returns the id of the session in the database.
func (s *caseSession) ID() string { return s.Describe().ID }

func (s *caseSession) Close() error {
	err := s.Session.Close()
	s.network.Close()
	return err
}
