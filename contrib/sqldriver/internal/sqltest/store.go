package sqltest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/hooks"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/plant"
)

// Store is the database of one test. It is a connector whose sessions have the
// type [Session], so that tests can inject faults into them.
type Store struct {
	Addr    string
	Notices string // see [hooks.NewNetwork]
	Admin   *sql.DB
	Outages bool // Exec ignores errors: the server may be down

	// Begin begins a session that opens connections with dial and sends its
	// requests to the store that wrap returns.
	Begin func(ctx context.Context, dial Dial, wrap func(session.Store) session.Store) (*session.Session, error)
	// Connector returns a connector without faults.
	Connector func() driver.Connector
	// Late returns a store that sends late requests of the given session.
	Late func(id string) sqlstore.Store
	// Own adapts a statement to this database. It may be nil.
	Own func(text string) string
}

type Session struct {
	*session.Session
	Database *Store
	Requests *hooks.Requests
	Network  *hooks.Network
}

// NewSession begins a session that is closed when the test ends.
func NewSession(t *testing.T, c driver.Connector) *Session {
	t.Helper()
	return connect(t, c).(*Session)
}

// Connect implements driver.Connector.
func (st *Store) Connect(ctx context.Context) (driver.Session, error) {
	network, err := hooks.NewNetwork(st.Addr, st.Notices)
	if err != nil {
		return nil, err
	}
	s := &Session{Database: st, Network: network}
	s.Session, err = st.Begin(ctx, network.Dial, func(inner session.Store) session.Store {
		s.Requests = hooks.Wrap(inner)
		return s.Requests
	})
	if err != nil {
		network.Close()
		return nil, err
	}
	return s, nil
}

// Check implements driver.Checker. It connects without faults.
func (st *Store) Check(ctx context.Context) ([]driver.Finding, error) {
	return st.Connector().(driver.Checker).Check(ctx)
}

// Exec runs a statement, as an operator might by hand.
func (st *Store) Exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if st.Own != nil {
		text = st.Own(text)
	}
	if _, err := st.Admin.Exec(text, args...); !st.Outages {
		require.NoError(t, err)
	}
}

func (st *Store) itself() *Store { return st }

func (s *Session) ID() string { return s.Describe().ID }

func (s *Session) Close() error {
	err := s.Session.Close()
	s.Network.Close()
	return err
}

// ByHandTexts are the statements by which somebody changes a database by hand.
type ByHandTexts struct {
	End         string   // takes the session ID
	RemoveQueue []string // each takes the queue
	RemoveNode  string   // takes the queue and the name
	PutNode     string   // takes the queue, the name, and the data
}

// Conformance returns the [dlocktest.Config] for connectors that are a [Store]
// or embed one.
func Conformance(newStore func(t *testing.T) driver.Connector, timeout time.Duration, texts ByHandTexts) dlocktest.Config {
	of := func(c driver.Connector) *Store { return c.(interface{ itself() *Store }).itself() }
	c := dlocktest.Config{
		New: newStore,
		// All queues share a counter of 18 digits, which no test can use up.
		NewNearRollOver: newStore,
		SessionTimeout:  timeout,
		Timeout:         plant.CaseTimeout(),
		Parallel:        4,
		Complete:        true,
		Abilities:       []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityReleased, dlocktest.AbilityCheck},
		Drop:            func(t *testing.T, s driver.Session) { s.(*Session).Database.Exec(t, texts.End, s.(*Session).ID()) },
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			for _, text := range texts.RemoveQueue {
				of(c).Exec(t, text, queue)
			}
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			of(c).Exec(t, texts.RemoveNode, queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			of(c).Exec(t, texts.PutNode, queue, name, append([]byte{}, data...))
		},
	}
	hooks.Set(&c, func(s driver.Session) *hooks.Network { return s.(*Session).Network }, func(t *testing.T, s driver.Session) session.Store {
		late := s.(*Session).Database.Late(s.(*Session).ID())
		t.Cleanup(late.Close)
		return late
	})
	return c
}
