//go:build linux || darwin

package soak

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

// node returns a node that the transaction of that number has made.
func node(transaction int64) shownNode {
	return shownNode{path: "/soak1/a/h-W-0000000001", transaction: transaction, session: 7}
}

func views(all ...serverView) survey { return all }

func view(transactions ...int64) serverView {
	v := make(serverView)
	for _, t := range transactions {
		v[node(t)] = true
	}
	return v
}

func TestOnlyADifferenceThatStaysIsADivergence(t *testing.T) {
	oneHasMore := views(view(1), view(1, 2), view(1))
	equal := views(view(1), view(1), view(1))
	last := func(s survey, n int, last survey) []survey {
		return append(slices.Repeat([]survey{s}, n-1), last)
	}
	var busy []survey // each survey shows a different node that is on one server only
	for i := range int64(surveyCount) {
		busy = append(busy, views(view(), view(i), view()))
	}
	for name, c := range map[string]struct {
		surveys  []survey
		diverged bool
	}{
		"one server shows a node":                {slices.Repeat([]survey{oneHasMore}, surveyCount), true},
		"one server shows another node":          {slices.Repeat([]survey{views(view(1), view(2), view(1))}, surveyCount), true},
		"one server shows nothing":               {slices.Repeat([]survey{views(view(1), view(), view(1))}, surveyCount), true},
		"all servers show a node that is left":   {slices.Repeat([]survey{equal}, surveyCount), false},
		"the servers agree in the last survey":   {last(oneHasMore, surveyCount, equal), false},
		"a server catches up in the last survey": {last(oneHasMore, surveyCount, views(view(1, 2), view(1, 2), view(1, 2))), false},
		"nodes come and go":                      {busy, false},
		"a server does not answer":               {slices.Repeat([]survey{views(view(1), view(1, 2), nil)}, surveyCount), false},
		"a server does not answer once":          {last(oneHasMore, surveyCount, views(view(1), view(1, 2), nil)), false},
		"too few surveys":                        {slices.Repeat([]survey{oneHasMore}, surveyCount-1), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.diverged, len(divergence(c.surveys)) > 0, divergence(c.surveys))
		})
	}
	require.Equal(t, []string{"servers [1] show /soak1/a/h-W-0000000001 (made by transaction 0x2, of session 0x7), servers [0 2] do not"},
		divergence(slices.Repeat([]survey{oneHasMore}, surveyCount)))
}

func TestSurveysEndWhenTheServersAgree(t *testing.T) {
	answers := []survey{views(view(1), view()), views(view(2), view()), views(view(3), view(3)), views(view(4), view())}
	pauses := 0
	all := repeatSurvey(func() survey { return answers[pauses] }, func() bool { pauses++; return true })
	require.Equal(t, answers[:3], all)

	all = repeatSurvey(func() survey { return answers[0] }, func() bool { return true })
	require.Len(t, all, surveyCount)
	all = repeatSurvey(func() survey { return answers[0] }, func() bool { return false })
	require.Len(t, all, 1, "the caller has stopped it")
}

// judged plays the end of a round whose workers have written these journals into
// a directory.
func judged(t *testing.T, dir string, surveys []survey, journals ...[]event) (wrong []string, diverged bool) {
	t.Helper()
	s := &round{t: t, number: 1, dir: dir, figures: newFigures(1), differences: divergence(surveys)}
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

// The servers agree on a node that a fault of the lock has left behind, and a
// waiter behind it is stuck. If the servers have diverged, the same journals
// show no fault of the lock.
func TestAStuckWaiterIsAFaultUnlessTheServersHaveDiverged(t *testing.T) {
	waiter := []event{{Kind: stuck, Text: "a: not granted"}}

	left := slices.Repeat([]survey{views(view(1), view(1), view(1))}, surveyCount)
	wrong, diverged := judged(t, t.TempDir(), left, acquisition(5, 1, 10, 20), waiter)
	require.False(t, diverged)
	require.Contains(t, wrong, "w2-1: a: not granted")

	apart := slices.Repeat([]survey{views(view(1), view(), view())}, surveyCount)
	wrong, diverged = judged(t, t.TempDir(), apart, acquisition(5, 1, 10, 20), waiter)
	require.True(t, diverged)
	require.Empty(t, wrong)
}

func TestWhatIsUnsafeCountsAlsoIfTheServersHaveDiverged(t *testing.T) {
	apart := slices.Repeat([]survey{views(view(1), view(), view())}, surveyCount)
	for name, c := range map[string]struct {
		second []event
		lost   int64 // how many updates the counter lost
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

// Servers that have not diverged are found to agree, although one of them may
// have to catch up with the leader first.
func TestServersOfAnEnsembleAgree(t *testing.T) {
	e := zktest.StartEnsemble(t, 3)
	conn := zktest.Dial(t, longestTimeout, e.Addrs()...)
	for _, path := range []string{"/soak1", "/soak1/a"} {
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	path, err := conn.Create("/soak1/a/h-W-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	s := &round{t: t, ensemble: e, number: 1, chroot: "/soak1"}
	seen := s.survey()
	require.Len(t, seen, 3)
	require.True(t, agree(seen), seen)
	require.Contains(t, seen.String(), "server 2 shows "+path)
}
