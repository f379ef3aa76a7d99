package ensemble

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/zktest"
	_ "github.com/dlock-go/dlock/zkdriver"
)

func TestMain(m *testing.M) {
	os.Exit(leakcheck.After(zktest.Main(m)))
}
