package etcddriver

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) {
	code := etcdtest.Main(m)
	closeRaw()
	os.Exit(leakcheck.After(code))
}
