package memdriver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

func TestTwoClosesAtOnceWorkInVirtualTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		defer st.Faults().CutOff(s)()
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- s.Close() }()
		}
		require.ErrorIs(t, <-closed, driver.ErrUnavailable)
		require.ErrorIs(t, <-closed, driver.ErrUnavailable)
	})
}
