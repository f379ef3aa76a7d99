package recipes

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

type mortal struct {
	driver.Session
	lease  *driver.Lease
	closed chan struct{}

	deleted atomic.Bool
}

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

func (m *mortal) Delete(context.Context, string, driver.Place, driver.Cause) error {
	m.deleted.Store(true)
	return nil
}

func (m *mortal) List(context.Context, string) ([]driver.Node, error) {
	return []driver.Node{{Name: "h-W-0000000000"}}, nil
}

func (m *mortal) Close() error {
	close(m.closed)
	return nil
}

func granted(t *testing.T, s *mortal) (*RWMutex, *cohort, *sharedEntry) {
	t.Helper()
	client := NewClient(s)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	m := client.RWMutex("q", WithRetention(Retention{}))
	c := client.cohorts.use(m.queue)
	t.Cleanup(c.unuse)
	shared, err := c.contendShared(context.Background(), newCall(m.queue, writer))
	require.NoError(t, err)
	return m, c, shared
}

func TestAnEntryThatIsLostBeforeAWaiterGetsItDoesNotKeepTheLostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMortal(150 * time.Millisecond)
		_, c, shared := granted(t, s)
		<-s.Done()
		synctest.Wait()
		require.NotNil(t, shared.entry.Loss())
		c.callEnded(context.Background(), shared, nil)

		synctest.Wait()
		select {
		case <-s.closed:
		default:
			assert.Fail(t, "the lost session has not ended in the store")
		}
	})
}

func TestAnEntryThatIsGrantedWhenItsWaiterHasGoneIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMortal(time.Hour)
		_, c, shared := granted(t, s)
		c.callEnded(context.Background(), shared, nil)
		time.Sleep(time.Second) // until the idle entry is removed
		synctest.Wait()
		assert.True(t, s.deleted.Load())
	})
}
