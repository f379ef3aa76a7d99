package sqltest

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Refusal describes the error expected from a Connect that must fail.
type Refusal struct {
	Unavailable bool     // whether the error matches [driver.ErrUnavailable]
	Texts       []string // texts that the error must contain
	Secrets     []string // texts that the error must not contain
}

// Refused checks that [testenv.Connect] fails as described by want, and returns
// the error.
func Refused(t testing.TB, d driver.Driver, dsn string, want Refusal) error {
	t.Helper()
	_, err := testenv.Connect(t, d, dsn)
	want.check(t, err)
	return err
}

// Refusals returns two variants of [Refused]: one that expects a permanent
// error, and one that expects a temporary error.
func Refusals(d driver.Driver, secrets ...string) (refused, unavailable func(t testing.TB, dsn string, texts ...string) error) {
	of := func(temporary bool) func(testing.TB, string, ...string) error {
		return func(t testing.TB, dsn string, texts ...string) error {
			t.Helper()
			return Refused(t, d, dsn, Refusal{Unavailable: temporary, Texts: texts, Secrets: secrets})
		}
	}
	return of(false), of(true)
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
