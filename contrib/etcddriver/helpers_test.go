package etcddriver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// within returns a context that ends long after a test should have ended.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until a condition holds.
func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 60*time.Second, 5*time.Millisecond)
}

// client returns a client of the store.
func (s *store) client(t testing.TB) *dlock.Client {
	t.Helper()
	c := dlock.NewClient(s)
	require.NoError(t, c.Ping(within(t)))
	t.Cleanup(func() { require.NoError(t, c.Close()) }) // before the proxy is closed
	return c
}

func connectTo(t testing.TB, dsn string) *session {
	t.Helper()
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	s, err := c.Connect(within(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s.(*session)
}

// create makes a node. A request of the driver takes at least a second before it is
// taken for lost. Then the machine is slow, and create tries again.
func create(t testing.TB, s driver.Session, queue, prefix string) driver.Joined {
	t.Helper()
	for {
		began := time.Now()
		j, err := s.Create(within(t), queue, driver.NodeSpec{Prefix: prefix, Data: []byte(prefix + "data")})
		if errors.Is(err, driver.ErrUnavailable) && time.Since(began) >= time.Second {
			continue
		}
		require.NoError(t, err)
		return j
	}
}
