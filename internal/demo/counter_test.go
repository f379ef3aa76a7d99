package demo

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

type memoryCounter struct{ value, writes atomic.Int64 }

func (c *memoryCounter) read() (value, writes int64, err error) {
	return c.value.Load(), c.writes.Load(), nil
}

func (c *memoryCounter) write(value int64) error {
	c.value.Store(value)
	c.writes.Add(1)
	return nil
}

func (c *memoryCounter) close() {}

func open(t *testing.T, name string) counter {
	c, err := openCounter(name)
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

func increment(t *testing.T, c counter) {
	n, _, err := c.read()
	require.NoError(t, err)
	require.NoError(t, c.write(n+1))
}

func requireCounter(t *testing.T, c counter, value, writes int64) {
	t.Helper()
	v, w, err := c.read()
	require.NoError(t, err)
	require.Equal(t, [2]int64{value, writes}, [2]int64{v, w})
}

func TestACounterStartsAtZeroAndCountsIncrements(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "n"))
	requireCounter(t, c, 0, 0)
	for range 12 {
		increment(t, c)
	}
	requireCounter(t, c, 12, 12)
}

func TestACounterInAFileIsShared(t *testing.T) {
	file := filepath.Join(t.TempDir(), "n")
	one, other := open(t, file), open(t, file)
	increment(t, one)
	increment(t, other)
	requireCounter(t, one, 2, 2)
	increment(t, open(t, file))
	requireCounter(t, other, 3, 3)
}

func TestAnIncrementIsLostIfTwoWritersInterfere(t *testing.T) {
	c := open(t, filepath.Join(t.TempDir(), "n"))
	stale, _, err := c.read()
	require.NoError(t, err)
	increment(t, c)
	require.NoError(t, c.write(stale+1))
	requireCounter(t, c, 1, 2)
}
