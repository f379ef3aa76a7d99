package cas_test

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/castest"
	"github.com/dlock-go/dlock/driver/session/cas"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func TestConformance(t *testing.T) {
	t.Parallel()
	dlocktest.Run(t, castest.Config(func(*testing.T) func() cas.KV {
		m := cas.NewMemory()
		return func() cas.KV { return m }
	}))
}

func TestConformanceWithNotices(t *testing.T) {
	t.Parallel()
	dlocktest.Run(t, castest.Config(func(*testing.T) func() cas.KV {
		m := cas.NewMemory()
		return func() cas.KV { return cas.WithNotices(m) }
	}))
}
