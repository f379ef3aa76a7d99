package memdriver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

const (
	queue  = "stock/42"
	prefix = "web1-W-"
)

var background = context.Background()

func inVirtualTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func connect(t *testing.T, c driver.Connector) driver.Session {
	t.Helper()
	s, err := c.Connect(background)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var newNode = driver.NodeSpec{Prefix: prefix, Data: []byte("data")}

func createIn(t *testing.T, s driver.Session, queue string) driver.Place {
	t.Helper()
	j, err := s.Create(background, queue, newNode)
	require.NoError(t, err)
	return j.Place
}

func create(t *testing.T, s driver.Session) driver.Place {
	t.Helper()
	return createIn(t, s, queue)
}

func join(t *testing.T, s driver.Session) driver.Joined {
	t.Helper()
	j, err := s.Create(background, queue, newNode)
	require.NoError(t, err)
	return j
}

func list(t *testing.T, s driver.Session) []driver.Node {
	t.Helper()
	nodes, err := s.List(background, queue)
	require.NoError(t, err)
	return nodes
}

func watch(t *testing.T, s driver.Session, p driver.Place, ahead ...driver.Node) driver.Watch {
	t.Helper()
	w, err := s.Watch(background, queue, p, ahead...)
	require.NoError(t, err)
	return w
}

func watchQueue(t *testing.T, s driver.Session, queue string) driver.Watch {
	t.Helper()
	w, err := s.WatchQueue(background, queue)
	require.NoError(t, err)
	return w
}

func open[T any](ch <-chan T) bool {
	synctest.Wait()
	select {
	case <-ch:
		return false
	default:
		return true
	}
}

func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func withDeadline(d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(background, d)
	defer cancel()
	return f(ctx)
}

func requests(st *memdriver.Store, op faults.Op) int64 { return st.Stats().Requests[op] }
