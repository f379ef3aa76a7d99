package zktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 5*time.Millisecond)
}

func within(t *testing.T, what <-chan struct{}) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(30 * time.Second):
		t.Fatal("not within 30s: the channel has not closed")
	}
}
