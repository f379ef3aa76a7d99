//go:build linux || darwin

package soak

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/longtest/survey"
)

func shown(servers ...int) []survey.Survey {
	s := survey.Survey{survey.View{}, survey.View{}, survey.View{}}
	for _, server := range servers {
		s[server][survey.Node{Path: "/soak1/a/h-W-0000000001", Transaction: 1, Session: 7}] = true
	}
	return slices.Repeat([]survey.Survey{s}, survey.Count)
}

// judged writes the journals of a fabricated round to dir and returns the
// judge's verdict on that round.
func judged(t *testing.T, dir string, surveys []survey.Survey, journals ...[]event) (wrong []string, diverged bool) {
	t.Helper()
	s := &round{t: t, number: 1, dir: dir, figures: newFigures(1), differences: survey.Differences(surveys)}
	for i, events := range append([][]event{nil}, journals...) {
		name := fmt.Sprintf("w%d-1", i)
		if i == 0 {
			name = testJournal
		}
		j, err := newJournal(filepath.Join(s.dir, name+".journal"))
		require.NoError(t, err)
		for _, e := range events {
			j.note(e)
		}
		require.NoError(t, j.close())
	}
	return s.judge(), s.diverged()
}

func acquisition(token int64, seq int, from, to time.Duration) []event {
	return []event{
		{Kind: asked, Hold: 1, Lock: "a", At: from - 1},
		{Kind: granted, Hold: 1, Lock: "a", Mode: "exclusive", Held: true, Token: token,
			Node: fmt.Sprintf("h-W-%010d", seq), At: from},
		{Kind: released, Hold: 1, Held: true, At: to},
	}
}

// A waiter may be stuck because the lock is broken, or because the servers
// disagree for good. Only the former is a failure.
func TestAStuckWaiterIsAFaultUnlessTheServersHaveDiverged(t *testing.T) {
	waiter := []event{{Kind: stuck, Text: "a: not granted"}}

	left := shown(0, 1, 2)
	wrong, diverged := judged(t, t.TempDir(), left, acquisition(5, 1, 10, 20), waiter)
	require.False(t, diverged)
	require.Contains(t, wrong, "w2-1: a: not granted")

	apart := shown(0)
	wrong, diverged = judged(t, t.TempDir(), apart, acquisition(5, 1, 10, 20), waiter)
	require.True(t, diverged)
	require.Empty(t, wrong)
}

func TestWhatIsUnsafeCountsAlsoIfTheServersHaveDiverged(t *testing.T) {
	apart := shown(0)
	for name, c := range map[string]struct {
		second []event
		lost   int64 // updates lost by the counter
		wrong  string
	}{
		"two holders":          {acquisition(6, 2, 15, 30), 0, "two at once"},
		"order of tokens":      {acquisition(4, 2, 25, 30), 0, "not in the order of tokens"},
		"one token for two":    {acquisition(5, 2, 25, 30), 0, "one token for two"},
		"lost update":          {acquisition(6, 2, 25, 30), 1, "has lost updates"},
		"an unexplained error": {[]event{{Kind: fault, Text: "unexplained"}}, 0, "unexplained"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := checkedCounter(dir, "a").step(func(t *tally) error {
				t.Count, t.Writes = 1, 1+c.lost
				return nil
			})
			require.NoError(t, err)
			wrong, diverged := judged(t, dir, apart, acquisition(5, 1, 10, 20), c.second)
			require.True(t, diverged)
			require.NotEmpty(t, wrong)
			require.Contains(t, wrong[0], c.wrong)
		})
	}
}
