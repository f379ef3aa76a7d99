package history

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
)

func TestHoldersSeeASecondHolderAndATokenThatDoesNotRise(t *testing.T) {
	client := dlock.NewClient(memdriver.New())
	defer client.Close()
	lock := func(name string) *dlock.Lock {
		l, err := client.RWMutex(name).Lock(t.Context())
		require.NoError(t, err)
		return l
	}
	first, other, second := lock("first"), lock("other"), lock("second")
	var h Holders
	enter := func(l *dlock.Lock, want bool, says string) {
		t.Helper()
		in, err := h.enter(l)
		require.Equal(t, want, in)
		if says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, says)
		}
	}
	h.Work(t, first)
	enter(first, true, "token 1 after 1")
	enter(other, true, "two holders at once")
	require.NoError(t, other.Unlock())
	enter(second, true, "")
	enter(other, false, "") // it was released
	require.NoError(t, first.Unlock())
	require.NoError(t, second.Unlock())
}
