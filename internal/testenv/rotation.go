package testenv

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Rotation replaces the secrets of a store while a session holds a lock.
type Rotation struct {
	Driver func(password func(context.Context) (string, error)) driver.Driver
	DSN    func(password string, c *Certs) string // password: "" or "password_file=...&"
	Certs  *Certs                                 // of the server

	// Password changes the server's password, which is "one" at first.
	// Certificates makes the server read Certs again. Both break all
	// connections.
	Password     func(text string)
	Certificates func()
	Refused      string // part of the error for a wrong password
}

// Run replaces each secret while a session holds a lock. The lock must stay
// held, and the session's errors must be temporary.
func (r Rotation) Run(t *testing.T) {
	file, current := t.TempDir()+"/password", atomic.Value{}
	set := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
		current.Store(text)
	}
	own, renewed := NewCerts(t), NewCerts(t)
	own.replaceBy(t, r.Certs)
	set("one")
	fromFile := r.DSN("password_file="+strings.ReplaceAll(file, "/", "%2F")+"&", own)
	if r.Password != nil {
		function := func(context.Context) (string, error) { return current.Load().(string), nil }
		r.rotate(t, nil, fromFile, func() { r.Password("two") }, r.Refused, func() { set("two") })
		r.rotate(t, function, r.DSN("", own), func() { r.Password("three") }, r.Refused, func() { set("three") })
	}
	r.rotate(t, nil, fromFile, func() { require.NoError(t, os.Truncate(own.CA, 0)); r.Certificates() }, "", func() { own.replaceBy(t, r.Certs) })
	r.rotate(t, nil, fromFile, func() { r.Certs.replaceBy(t, renewed); r.Certificates() }, "", func() { own.replaceBy(t, renewed) })
}

func (r Rotation) rotate(t *testing.T, function func(context.Context) (string, error), dsn string, refuse func(), refused string, renew func()) {
	t.Helper()
	c, err := r.Driver(function).OpenConnector(dsn)
	require.NoError(t, err)
	last := &latest{Connector: c}
	client := dlock.NewClient(last)
	defer client.Close()
	lock, err := client.RWMutex("rotated").Lock(t.Context())
	require.NoError(t, err)
	list := func(ctx context.Context) error {
		_, err := last.session.List(ctx, "rotated")
		require.True(t, err == nil || ctx.Err() != nil || errors.Is(err, driver.ErrUnavailable), "%v", err)
		return err
	}

	refuse()
	poll(t, func(ctx context.Context) bool {
		err := list(ctx)
		return err != nil && strings.Contains(err.Error(), refused)
	})
	poll(t, func(ctx context.Context) bool {
		_, err := c.Connect(ctx)
		require.ErrorIs(t, err, driver.ErrUnavailable, "another session")
		first, bad := r.Driver(function).OpenConnector(dsn)
		if bad == nil {
			_, bad = first.Connect(ctx)
		}
		require.Error(t, bad, "a first session")
		return strings.Contains(err.Error(), refused) && !errors.Is(bad, driver.ErrUnavailable)
	})
	renew()
	poll(t, func(ctx context.Context) bool {
		err := list(ctx)
		if s, ok := last.session.(*session.Session); ok && err == nil {
			_, err = s.Store().Beat(ctx)
		}
		return err == nil
	})
	queue, err := client.RWMutex("rotated").Queue(t.Context())
	require.NoError(t, err)
	require.Equal(t, lock.Node(), queue[0].Node)
	require.NoError(t, lock.Unlock())
}

func poll(t *testing.T, condition func(context.Context) bool) {
	t.Helper()
	for end, done := time.Now().Add(time.Minute), false; !done; time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "not within a minute")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		done = condition(ctx)
		cancel()
	}
}

type latest struct {
	driver.Connector
	session driver.Session
}

func (l *latest) Connect(ctx context.Context) (s driver.Session, err error) {
	l.session, err = l.Connector.Connect(ctx)
	return l.session, err
}

func (c *Certs) replaceBy(t *testing.T, other *Certs) {
	for to, from := range map[string]string{c.CA: other.CA, c.Server.Cert: other.Server.Cert, c.Server.Key: other.Server.Key,
		c.Server.Both: other.Server.Both, c.Client.Cert: other.Client.Cert, c.Client.Key: other.Client.Key} {
		text, err := os.ReadFile(from)
		require.NoError(t, errors.Join(err, os.WriteFile(to, text, 0o600)))
	}
}
