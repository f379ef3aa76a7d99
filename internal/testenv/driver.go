package testenv

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// Connect begins a session, and closes it when the test ends. It gives up after
// 30 seconds. It fails the test if the driver rejects the data source name.
func Connect(t testing.TB, d driver.Driver, dsn string) (driver.Session, error) {
	t.Helper()
	c, err := d.OpenConnector(dsn)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := c.Connect(ctx)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

// Session is like [Connect], but fails the test on any error.
func Session(t testing.TB, d driver.Driver, dsn string) driver.Session {
	t.Helper()
	s, err := Connect(t, d, dsn)
	require.NoError(t, err)
	return s
}

// LockLater takes a lock in the background. The channel receives the lock.
func LockLater(t testing.TB, m *dlock.RWMutex) <-chan *dlock.Lock {
	granted := make(chan *dlock.Lock, 1)
	go func() {
		l, err := m.Lock(t.Context())
		assert.NoError(t, err)
		granted <- l
	}()
	return granted
}

// RefuseDSNs checks that a driver refuses the data source names that are the
// keys of texts. The error must contain the prefix and the value of the key,
// but not the secret.
func RefuseDSNs(t testing.TB, d driver.Driver, prefix, secret string, texts map[string]string) {
	t.Helper()
	for dsn, text := range texts {
		c, err := d.OpenConnector(dsn)
		assert.Nil(t, c, dsn)
		if assert.ErrorContains(t, err, prefix, dsn) {
			assert.ErrorContains(t, err, text, dsn)
			assert.NotContains(t, err.Error(), secret, dsn)
		}
	}
}

// HideSecret checks that no verb of package fmt prints the secret in a value.
func HideSecret(t testing.TB, secret string, values ...any) {
	t.Helper()
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if strings.Contains(fmt.Sprintf(verb, value), secret) {
				t.Errorf("%s of %T prints the secret", verb, value)
			}
		}
	}
}

// Receive returns what c sends within a minute, and otherwise fails the test.
func Receive[T any](t testing.TB, c <-chan T, what string) (value T, open bool) {
	t.Helper()
	select {
	case value, open = <-c:
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
	return value, open
}
