package handmade

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/redisdriver"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
	"github.com/dlock-go/dlock/recipes"
)

const name = "stock/42"

// sessionTimeout is short because tests wait for it, but long enough for a busy
// machine.
const sessionTimeout = 4 * time.Second

// dlocker is dlock's own lock in a child process. Its setting has one server,
// with the driver's name in front.
type dlocker struct {
	mutex *dlock.RWMutex
	held  *dlock.Lock
}

func newDlock(s setting, p *points) (locker, error) {
	client, err := openDlock(s.Servers[0], dlock.WithTrace(&recipes.Trace{
		Waiting: func(context.Context, recipes.WaitingInfo) { p.wait() },
	}))
	if err != nil {
		return nil, err
	}
	return &dlocker{mutex: client.RWMutex(name)}, nil
}

func (s setting) lasting(timeout time.Duration) setting {
	const parameter = "session_timeout="
	s.Servers = []string{strings.Replace(s.Servers[0], parameter+sessionTimeout.String(), parameter+timeout.String(), 1)}
	return s
}

func openDlock(server string, opts ...dlock.Option) (*dlock.Client, error) {
	driver, dsn, _ := strings.Cut(server, " ")
	return dlock.Open(driver, dsn, opts...)
}

func (l *dlocker) lock(ctx context.Context) (int64, error) {
	held, err := l.mutex.Lock(ctx)
	if err != nil {
		return 0, err
	}
	l.held = held
	return held.Token(), nil
}

func (l *dlocker) check() error                 { return l.held.Err() }
func (l *dlocker) unlock(context.Context) error { return l.held.Unlock() }

func useDlock(driver, dsn string) setting {
	return setting{Lock: "dlock", Servers: []string{driver + " " + dsn}}
}

func open(t testing.TB, s setting) *dlock.Client {
	t.Helper()
	client, err := openDlock(s.Servers[0])
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() }) // the server may be down
	return client
}

// awaitQueue waits until the queue has exactly these tokens and the first one
// holds the lock. A token of 0 matches any.
func awaitQueue(t testing.TB, s setting, tokens ...int64) {
	t.Helper()
	mutex := open(t, s).RWMutex(name)
	for end := time.Now().Add(bound); ; time.Sleep(10 * time.Millisecond) {
		queue, err := mutex.Queue(t.Context())
		if err == nil && slices.EqualFunc(queue, tokens, func(c dlock.Contender, token int64) bool {
			return (token == 0 || c.Token == token) && c.Holds == (c.Node == queue[0].Node)
		}) {
			return
		}
		require.False(t, time.Now().After(end), "the queue is %v: %v", queue, err)
	}
}
