package postgres

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// foreignError is a server error as returned by a client other than pgx.
type foreignError struct{}

func (foreignError) Error() string    { return `relation "dlock.meta" does not exist` }
func (foreignError) SQLState() string { return "42P01" }

// The error of another client must say to use pgx instead.
func TestAnErrorOfAnotherClientNamesPgx(t *testing.T) {
	err := markError(t.Context(), fmt.Errorf("wrapped: %w", foreignError{}))
	if !errors.Is(err, foreignError{}) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "jackc/pgx/v5") {
		t.Error(err)
	}
}

// A real server sends these errors only after hours, or from version 17 on.
func TestErrorsThatPass(t *testing.T) {
	for _, c := range []struct {
		code, severity string
		refused        bool
	}{
		{"54000", "ERROR", true},  // too many notifications in the NOTIFY queue
		{"25P04", "FATAL", false}, // transaction_timeout
	} {
		err := markError(t.Context(), &pgconn.PgError{Code: c.code, Severity: c.severity})
		if !errors.Is(err, driver.ErrUnavailable) || isRefused(err) != c.refused {
			t.Errorf("%s: %v, refused %v", c.code, err, isRefused(err))
		}
	}
}

func isRefused(err error) bool {
	return errors.As(err, reflect.New(reflect.TypeOf(session.Refused(nil))).Interface())
}
