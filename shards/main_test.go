package shards_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) {
	// Go 1.26's race detector crashes if two threads run timers of one synctest
	// bubble (golang.org/issue/78156).
	runtime.GOMAXPROCS(1)
	os.Exit(leakcheck.After(m.Run()))
}
