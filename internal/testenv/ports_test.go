package testenv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachPortIsReturnedOnce(t *testing.T) {
	seen := make(map[int]bool)
	for range 200 {
		port, err := FreePort()
		require.NoError(t, err)
		require.False(t, seen[port])
		seen[port] = true
	}
}
