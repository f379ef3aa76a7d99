package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// foreignError is an error of the server as another client than pgx returns it.
type foreignError struct{}

func (foreignError) Error() string    { return `relation "dlock.meta" does not exist` }
func (foreignError) SQLState() string { return "42P01" }

// A session that uses another client would never create the tables, and a caller would
// try again although that cannot help.
func TestAnErrorOfAnotherClientNamesPgx(t *testing.T) {
	err := markError(t.Context(), fmt.Errorf("wrapped: %w", foreignError{}))
	if !errors.Is(err, foreignError{}) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "jackc/pgx/v5") {
		t.Error(err)
	}
}
