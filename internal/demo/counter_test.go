package demo

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// memoryCounter is a counter without a file.
type memoryCounter struct{ value, made atomic.Int64 }

func (c *memoryCounter) load() (int64, error)       { return c.value.Load(), nil }
func (c *memoryCounter) store(n int64) error        { c.value.Store(n); return nil }
func (c *memoryCounter) countIncrement() error      { c.made.Add(1); return nil }
func (c *memoryCounter) increments() (int64, error) { return c.made.Load(), nil }
func (c *memoryCounter) close()                     {}

func open(t *testing.T, name string) counter {
	c, err := openCounter(name)
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

// increment increments the counter once, in the steps that a writer takes.
func increment(t *testing.T, c counter) {
	n, err := c.load()
	require.NoError(t, err)
	require.NoError(t, c.store(n+1))
	require.NoError(t, c.countIncrement())
}

func values(t *testing.T, c counter) reading {
	value, err := c.load()
	require.NoError(t, err)
	increments, err := c.increments()
	require.NoError(t, err)
	return reading{value, increments}
}

func TestACounterStartsAtZeroAndCountsIncrements(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "n"))
	assert.Equal(t, reading{0, 0}, values(t, c))
	for range 12 {
		increment(t, c)
	}
	assert.Equal(t, reading{12, 12}, values(t, c))
}

func TestACounterInAFileIsShared(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	one, other := open(t, file), open(t, file)
	increment(t, one)
	increment(t, other)
	assert.Equal(t, reading{2, 2}, values(t, one))
	increment(t, open(t, file))
	assert.Equal(t, reading{3, 3}, values(t, other))
}

func TestAnIncrementIsLostIfTwoWritersInterfere(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "n"))
	stale, err := c.load()
	require.NoError(t, err)
	increment(t, c)
	require.NoError(t, c.store(stale+1))
	require.NoError(t, c.countIncrement())
	assert.Equal(t, reading{1, 2}, values(t, c))
}

func TestAFileThatHoldsNoCounterIsRefused(t *testing.T) {
	for _, text := range []string{"hello\n", "-1\n", "1\n2\n", "123456789012345678901234567890", "\n\n"} {
		file := filepath.Join(t.TempDir(), "n")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := openCounter(file)
		require.ErrorContains(t, err, "does not hold a counter", "%q", text)
		left, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, text, string(left))
		assert.NoFileExists(t, file+".increments")
	}
	_, err := openCounter(filepath.Join(t.TempDir(), "missing", "n"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
