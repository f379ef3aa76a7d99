package mysql

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/mysqltest"
)

func TestMain(m *testing.M) {
	os.Exit(leakcheck.After(mysqltest.Main(m)))
}
