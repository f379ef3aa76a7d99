package castest_test

import (
	"testing"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/castest"
	"github.com/dlock-go/dlock/driver/session/cas"
)

func Example() {
	newKV := func(prefix string) cas.KV { return nil } // stands for the driver's own function
	_ = func(t *testing.T) {                           // a real test would call this TestConformance
		dlocktest.Run(t, castest.Config(func(t *testing.T) (connect func() cas.KV) {
			return func() cas.KV { return newKV(t.Name() + "/") }
		}))
	}
}
