//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/hooks"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
)

const conformanceTimeout = 600 * time.Millisecond

func TestConformance(t *testing.T) {
	c := dlocktest.Config{
		New: newStore,
		// No test can bring the counter near its end at 10^18.
		NewNearRollOver: newStore,
		SessionTimeout:  conformanceTimeout,
		Parallel:        4,
		Complete:        true,
		Abilities:       []dlocktest.Ability{dlocktest.AbilityAhead},
		Drop: func(t *testing.T, s driver.Session) {
			d := memberOf(s).store
			require.NoError(t, os.Remove(d.path(memberOf(s).id)))
			operate(t, d, func(*state) {})
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			operate(t, c.(faulty).store, func(st *state) {
				st.keep(queue, func(session.Row) bool { return false })
			})
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			operate(t, c.(faulty).store, func(st *state) {
				st.keep(queue, func(n session.Row) bool { return n.Name != name })
			})
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			operate(t, c.(faulty).store, func(st *state) {
				q := st.Queues[queue]
				q.Nodes = append(q.Nodes, session.Row{Name: name, Data: data})
				st.store(queue, q)
			})
		},
	}
	hooks.Set(&c, nil, nil)
	c.HoldRequest = func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
		hooks.Of(s).Lose(op, false)
		return func() {} // a file change never arrives late
	}
	dlocktest.Run(t, c)
}

// operate changes the state file of a store as an operator might.
func operate(t *testing.T, d store, f func(*state)) {
	err := d.update(context.Background(), func(st *state) error {
		f(st)
		return nil
	})
	require.NoError(t, err)
}

type faulty struct{ connector }

func newStore(t *testing.T) driver.Connector {
	dir := directory(t)
	c, err := Driver{}.OpenConnector(dir + "?session_timeout=" + conformanceTimeout.String())
	require.NoError(t, err)
	return faulty{c.(connector)}
}

// directory is in memory if possible, because the tests make many changes.
func directory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "dlock-example-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		assert.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

func (c faulty) Connect(ctx context.Context) (driver.Session, error) {
	m := c.newMember()
	return c.begin(ctx, m, hooks.Wrap(m))
}

func memberOf(s driver.Session) *member { return hooks.Of(s).Unwrap().(*member) }
