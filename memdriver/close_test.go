package memdriver_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

func TestTwoClosesAtOnceWorkInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memdriver.New()
		s, err := st.Connect(t.Context())
		require.NoError(t, err)
		heal := st.Faults().CutOff(s)
		defer heal()
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- s.Close() }()
		}
		require.ErrorIs(t, <-closed, driver.ErrUnavailable)
		require.ErrorIs(t, <-closed, driver.ErrUnavailable)
	})
}
