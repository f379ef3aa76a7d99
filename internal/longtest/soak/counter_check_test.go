//go:build linux || darwin

package soak

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCounterSeesTwoHoldersAndLostUpdates(t *testing.T) {
	c := checkedCounter(t.TempDir(), "a/b")
	begin := func(token, owner int64) func() error {
		return func() error { _, err := c.begin(token, owner); return err }
	}
	write := func(count, token int64) func() error { return func() error { return c.write(count, token) } }
	read := func(token int64) func() error {
		return func() error { _, err := c.readAs(token, 0); return err }
	}
	for i, step := range []struct {
		do    func() error
		stale bool
		after tally
	}{
		{begin(5, 1), false, tally{Token: 5, Owner: 1}},
		{begin(6, 2), false, tally{Token: 6, Owner: 2}}, // the next holder has a higher token
		{write(1, 5), true, tally{Token: 6, Owner: 2, Refused: 1}},
		{write(1, 6), false, tally{Token: 6, Owner: 2, Refused: 1, Count: 1, Writes: 1}},
		{write(2, 6), false, tally{Token: 6, Owner: 2, Refused: 1, Count: 2, Writes: 2}}, // one holder may write several times
		{read(5), true, tally{Token: 6, Owner: 2, Refused: 2, Count: 2, Writes: 2}},
		{read(6), false, tally{Token: 6, Owner: 2, Refused: 2, Count: 2, Writes: 2, Reader: 6}}, // downgraded
		{read(9), false, tally{Token: 6, Owner: 2, Refused: 2, Count: 2, Writes: 2, Reader: 9}},
		{read(8), false, tally{Token: 6, Owner: 2, Refused: 2, Count: 2, Writes: 2, Reader: 9}},
		{write(3, 6), true, tally{Token: 6, Owner: 2, Refused: 3, Count: 2, Writes: 2, Reader: 9}}, // refused, because of a later reader
		{begin(10, 3), false, tally{Token: 10, Owner: 3, Refused: 3, Count: 2, Writes: 2, Reader: 9}},
		{begin(10, 4), false, tally{Token: 10, Owner: 4, Refused: 3, Count: 2, Writes: 2, Reader: 9, Twice: 1}},
		{write(2, 10), false, tally{Token: 10, Owner: 4, Refused: 3, Count: 2, Writes: 3, Reader: 9, Twice: 1}},
	} {
		if err := step.do(); step.stale {
			require.ErrorIs(t, err, errStale, i)
		} else {
			require.NoError(t, err, i)
		}
		seen, err := c.read()
		require.NoError(t, err)
		require.Equal(t, step.after, seen, i)
	}
	seen, err := c.read()
	require.NoError(t, err)
	require.EqualValues(t, 1, seen.lost())
}

func TestCounterTakesOneStepAtATime(t *testing.T) {
	c := uncheckedCounter(t.TempDir(), "a")
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
