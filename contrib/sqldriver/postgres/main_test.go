package postgres

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func TestMain(m *testing.M) {
	os.Exit(leakcheck.After(pgtest.Main(m)))
}
