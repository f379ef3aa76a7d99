package memdriver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

const (
	queue  = "stock/42"
	prefix = "web1-W-"
)

var background = context.Background()

// inVirtualTime runs f in a bubble, which also fails if a goroutine outlives it.
func inVirtualTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// connect returns a session that is closed with the test.
func connect(t *testing.T, c driver.Connector) driver.Session {
	t.Helper()
	s, err := c.Connect(background)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func create(t *testing.T, s driver.Session) driver.Place {
	t.Helper()
	p, err := s.Create(background, queue, prefix, []byte("data"))
	require.NoError(t, err)
	return p
}

func list(t *testing.T, s driver.Session) []driver.Node {
	t.Helper()
	nodes, err := s.List(background, queue)
	require.NoError(t, err)
	return nodes
}

func watch(t *testing.T, s driver.Session, name string) <-chan driver.Cause {
	t.Helper()
	ch, err := s.Watch(background, queue, name)
	require.NoError(t, err)
	return ch
}

// open reports whether a channel has not closed once everything in the bubble has settled.
func open[T any](ch <-chan T) bool {
	synctest.Wait()
	select {
	case <-ch:
		return false
	default:
		return true
	}
}

// elapse lets time pass in the bubble, and everything happen that is due by then.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// withDeadline calls f with a context that ends after d.
func withDeadline(d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(background, d)
	defer cancel()
	return f(ctx)
}

// hookedContext tells when something begins to wait for its end, and when that stops.
type hookedContext struct {
	context.Context
	afterFunc, stop func()
}

func (*hookedContext) Done() <-chan struct{} { return make(chan struct{}) }

func (c *hookedContext) AfterFunc(func()) (stop func() bool) {
	c.afterFunc()
	return func() bool { c.stop(); return true }
}

// witness makes other watch a node of s and look, at the instant at which the node
// goes, whether s is known to have ended.
func witness(t *testing.T, s, other driver.Session, name string) (ended *bool) {
	t.Helper()
	ended = new(bool)
	_, err := other.Watch(&hookedContext{
		Context:   background,
		afterFunc: func() {},
		stop: func() {
			select {
			case <-s.Done():
				*ended = s.Err() != nil
			default:
			}
		},
	}, queue, name)
	require.NoError(t, err)
	return ended
}

// eventually waits in real time, on the test's own goroutine.
func eventually(t *testing.T, otherwise string, ok func() bool) {
	t.Helper()
	for range 10_000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal(otherwise)
}

func requests(st *memdriver.Store, op memdriver.Op) int64 { return st.Stats().Requests[op] }
