package recipes

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// mortal is a session that makes nodes until its lease ends.
type mortal struct {
	driver.Session
	lease  *driver.Lease
	closed chan struct{}
}

func (m *mortal) Connect(context.Context) (driver.Session, error) { return m, nil }
func (m *mortal) Done() <-chan struct{}                           { return m.lease.Done() }
func (m *mortal) Err() error                                      { return m.lease.Err() }

func (m *mortal) Create(context.Context, string, string, []byte) (driver.Place, error) {
	return driver.Place{Node: driver.Node{Name: "h-W-0000000000"}, Token: 1, Alone: true}, nil
}

func (m *mortal) Close() error {
	close(m.closed)
	return nil
}

func TestALockThatIsLostBeforeAWaiterGetsItDoesNotKeepTheLostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &mortal{lease: driver.NewLease(guardAfter, guardAfter/2), closed: make(chan struct{})}
		s.lease.Renew(s.lease.Now())
		c := New(s)
		defer func() { assert.NoError(t, c.Close()) }()
		m := c.RWMutex("q", WithRetention(Retention{}))
		r := c.retainers.use(m)
		defer r.ref(-1)

		a := attempt{m: m, mode: Exclusive, retainer: r, pursuit: &pursuit{}}
		l, err := a.run(context.Background())
		require.NoError(t, err)
		<-s.Done()
		synctest.Wait()
		require.True(t, l.hold.gone())
		r.pursued(context.Background(), l, nil)

		synctest.Wait()
		select {
		case <-s.closed:
		default:
			assert.Fail(t, "the lost session has not ended in the store")
		}
	})
}
