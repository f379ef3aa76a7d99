package endtoend_test

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(zktest.Main(m))) }
