package zkdriver

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/internal/zktest"
)

func TestMain(m *testing.M) { os.Exit(zktest.Main(m)) }
