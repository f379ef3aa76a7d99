package demo

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Without a data source name, each process has its own in-memory store, so the
// processes do not exclude each other.
func TestProcessesWithoutACommonLockAreReported(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := parse([]string{"-workers", "4", "-rounds", "3", "-shared-ratio", "0", "-seed", "1"})
	require.NoError(t, err)
	s.Processes = 2 // parse rejects more than one process with an in-memory store
	var stdout, stderr bytes.Buffer
	assert.Equal(t, statusBad, run(t.Context(), s, s.open, &stdout, &stderr), "%s", &stderr)
	assert.Contains(t, stdout.String(), "VIOLATED  alone")
	assert.Contains(t, stdout.String(), "VIOLATED  counter")
	assert.Contains(t, stdout.String(), "VERDICT: VIOLATED")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left, "the counter's file was removed")
}
