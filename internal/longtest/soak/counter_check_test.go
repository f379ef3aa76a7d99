//go:build linux || darwin

package soak

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCounterRefusesOldTokens(t *testing.T) {
	c := checkedCounter(t.TempDir(), "a")
	count, err := c.begin(5)
	require.NoError(t, err)
	_, err = c.begin(6) // the next holder has a higher token
	require.NoError(t, err)
	require.ErrorIs(t, c.write(count+1, 5), errStale)
	require.NoError(t, c.write(count+1, 6))
	require.NoError(t, c.write(count+2, 6), "one holder may write several times")
	_, err = c.readAs(5)
	require.ErrorIs(t, err, errStale)
	_, err = c.readAs(9)
	require.NoError(t, err)
	require.NoError(t, c.write(count+3, 6), "a read does not raise the stored token")
	seen, err := c.read()
	require.NoError(t, err)
	require.Equal(t, tally{Count: 3, Writes: 3, Token: 6, Refused: 2}, seen)
	require.Zero(t, seen.lost())
}

func TestCounterCountsOverwrittenUpdates(t *testing.T) {
	c := uncheckedCounter(t.TempDir(), "a/b")
	require.NoError(t, c.writeUnchecked(1))
	require.NoError(t, c.writeUnchecked(2))
	require.NoError(t, c.writeUnchecked(2)) // based on 1, so an update is lost
	require.NoError(t, c.writeUnchecked(3))
	seen, err := c.read()
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.lost())
}

func TestCounterTakesOneStepAtATime(t *testing.T) {
	c := checkedCounter(t.TempDir(), "a")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				c.step(func(t *tally) error { t.Writes++; t.Count++; return nil })
			}
		})
	}
	all.Wait()
	seen, err := c.read()
	require.NoError(t, err)
	require.EqualValues(t, 400, seen.Count)
}
