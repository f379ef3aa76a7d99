package sqltest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// Connect opens a session, within 30 seconds, that is closed when the test
// ends. It fails the test at once if the driver rejects the data source name.
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

// Refusal describes the error expected from a Connect that must fail.
type Refusal struct {
	Unavailable bool     // whether the error matches [driver.ErrUnavailable]
	Texts       []string // texts that the error must contain
	Secrets     []string // texts that the error must not contain
}

// Refused checks that [Connect] fails with the error described by want, and
// returns that error.
func Refused(t testing.TB, d driver.Driver, dsn string, want Refusal) error {
	t.Helper()
	_, err := Connect(t, d, dsn)
	want.check(t, err)
	return err
}

func (want Refusal) check(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("Connect succeeded")
	}
	if errors.Is(err, driver.ErrUnavailable) != want.Unavailable {
		t.Errorf("errors.Is(%q, ErrUnavailable) is %v", err, !want.Unavailable)
	}
	for _, text := range want.Texts {
		assert.Contains(t, err.Error(), text)
	}
	for _, secret := range want.Secrets {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error %q repeats the password", err)
		}
	}
}
