package demo

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each process has a store of its own in its memory. So each process gets the lock
// whenever it likes.
func TestProcessesWithoutACommonLockAreReported(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := parse([]string{"-workers", "4", "-rounds", "3", "-shared-ratio", "0", "-seed", "1"})
	require.NoError(t, err)
	s.processes = 2 // parse refuses that
	var stdout, stderr bytes.Buffer
	assert.Equal(t, statusBad, run(t.Context(), s, s.open, &stdout, &stderr), "%s", &stderr)
	assert.Contains(t, stdout.String(), "VIOLATED  alone")
	assert.Contains(t, stdout.String(), "VIOLATED  counter")
	assert.Contains(t, stdout.String(), "VERDICT: VIOLATED")
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left, "the counter's file was removed")
}

// The host names of the processes are longer than the prefix on the command line.
func TestTheLongestHostNameFitsEveryProcess(t *testing.T) {
	s, err := parse([]string{"-driver", "none", "-dsn", "x", "-processes", "10", "-host", strings.Repeat("h", 60)})
	require.NoError(t, err)
	g := newGroup(s, newJournal(io.Discard), nil)
	require.Len(t, g.children, 10)
	for _, c := range g.children {
		_, err := parse(c.job.Args)
		require.NoError(t, err)
	}
}
