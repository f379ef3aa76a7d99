package recipes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// mortal is a session whose queue is empty but for its own node. It makes nodes
// until its lease ends.
type mortal struct {
	driver.Session
	lease  *driver.Lease
	closed chan struct{}
}

// newMortal returns a session whose lease ends after d.
func newMortal(d time.Duration) *mortal {
	m := &mortal{lease: driver.NewLease(2*d, d), closed: make(chan struct{})}
	m.lease.Renew(m.lease.Now())
	return m
}

func (m *mortal) Connect(context.Context) (driver.Session, error) { return m, nil }
func (m *mortal) Done() <-chan struct{}                           { return m.lease.Done() }
func (m *mortal) Err() error                                      { return m.lease.Err() }

func (m *mortal) Create(context.Context, string, driver.NodeSpec) (driver.Joined, error) {
	p := driver.Place{Node: driver.Node{Name: "h-W-0000000000"}, Token: 1}
	return driver.Joined{Place: p, Known: true}, nil
}

func (m *mortal) Watch(context.Context, string, driver.Place, ...driver.Node) (driver.Watch, error) {
	return driver.Watch{}, nil
}

func (m *mortal) WatchQueue(context.Context, string) (driver.Watch, error) {
	return driver.Watch{}, nil
}

func (m *mortal) Delete(context.Context, string, driver.Place, driver.Cause) error { return nil }

func (m *mortal) List(context.Context, string) ([]driver.Node, error) {
	return []driver.Node{{Name: "h-W-0000000000"}}, nil
}

func (m *mortal) Close() error {
	close(m.closed)
	return nil
}

// won returns a client with retention, its retainer of "q", and a lock that a
// pursuit of no waiter has just been granted.
func won(t *testing.T, s *mortal) (*RWMutex, *retainer, *Lock) {
	t.Helper()
	c := NewClient(s)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	m := c.RWMutex("q", WithRetention(Retention{}))
	r := c.retainers.use(m)
	t.Cleanup(func() { r.ref(-1) })
	a := attempt{m: m, mode: Exclusive, retainer: r, pursuit: &pursuit{}}
	l, err := a.run(context.Background())
	require.NoError(t, err)
	return m, r, l
}

func TestALockThatIsLostBeforeAWaiterGetsItDoesNotKeepTheLostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMortal(guardAfter / 2)
		_, r, l := won(t, s)
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

func TestALockThatIsWonWhenItsWaiterHasGoneIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMortal(time.Hour)
		m, r, l := won(t, s)
		r.pursued(context.Background(), l, nil)
		synctest.Wait()

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l, err := m.Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Unlock())
	})
}
