//go:build linux || darwin

package soak

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// madeUp returns a fabricated acquisition for tests of the judge. Times are in
// milliseconds.
func madeUp(worker, node string, token int64, exclusive bool, from, to time.Duration) *holding {
	return &holding{worker: worker, lock: "a", node: node, token: token, exclusive: exclusive, held: true,
		asked: (from - 1) * time.Millisecond, from: from * time.Millisecond, to: to * time.Millisecond, ended: to * time.Millisecond}
}

func writer(token int64, from, to time.Duration) *holding {
	return madeUp("w", "h-W-0000000001", token, true, from, to)
}

func reader(token int64, from, to time.Duration) *holding {
	return madeUp("r", "h-R-0000000002", token, false, from, to)
}

func TestJudgeFindsWhatIsWrong(t *testing.T) {
	downgraded := writer(5, 0, 30)
	downgraded.downgrading = 10 * time.Millisecond
	downgradedLate := writer(5, 0, 30)
	downgradedLate.downgrading = 20 * time.Millisecond
	refused := reader(5, 0, 10)
	refused.refusedAt = 5 * time.Millisecond
	for name, c := range map[string]struct {
		all   []*holding
		wrong string // part of the expected complaint, or empty
	}{
		"one writer after the other":              {[]*holding{writer(5, 0, 10), writer(6, 11, 20)}, ""},
		"two writers at once":                     {[]*holding{writer(5, 0, 10), writer(6, 10, 20)}, "two at once"},
		"a writer among the times of another one": {[]*holding{writer(5, 0, 100), writer(6, 10, 20), writer(7, 30, 40)}, "two at once"},
		"readers at once":                         {[]*holding{reader(5, 0, 10), reader(7, 5, 20), reader(6, 6, 7)}, ""},
		"a reader beside a writer":                {[]*holding{writer(5, 0, 10), reader(6, 5, 20)}, "two at once"},
		"a writer beside an early reader":         {[]*holding{reader(5, 0, 100), reader(6, 5, 20), writer(7, 50, 60)}, "two at once"},
		"a reader beside a downgraded holder":     {[]*holding{downgraded, reader(6, 15, 20)}, ""},
		"a reader before a holder has downgraded": {[]*holding{downgradedLate, reader(6, 15, 20)}, "two at once"},
		"a writer beside a downgraded holder":     {[]*holding{downgraded, writer(6, 15, 20)}, "two at once"},
		"writers out of order":                    {[]*holding{writer(6, 0, 10), writer(5, 11, 20)}, "not in the order"},
		"a reader out of order":                   {[]*holding{writer(6, 0, 10), reader(5, 11, 20)}, "not in the order"},
		"a writer out of order":                   {[]*holding{reader(6, 0, 10), writer(5, 11, 20)}, "not in the order"},
		"one token for two writers":               {[]*holding{writer(5, 0, 10), writer(5, 11, 20)}, "one token for two"},
		"a refused token of a lock that is held":  {[]*holding{refused}, "has seen a higher token"},
	} {
		t.Run(name, func(t *testing.T) { requireWrong(t, c.wrong, judgeLock(c.all)) })
	}
}

func requireWrong(t *testing.T, want string, wrong []string) {
	t.Helper()
	if want == "" {
		require.Empty(t, wrong)
		return
	}
	require.NotEmpty(t, wrong)
	require.Contains(t, wrong[0], want)
}

func TestHoldingEndsWhenAnOperatorRemovesItsNode(t *testing.T) {
	removal := event{Kind: removed, Lock: "a", Node: "h-W-0000000001", At: 10 * time.Millisecond}
	for name, c := range map[string]struct {
		next  *holding
		wrong string
	}{
		"the next holder comes after the removal": {writer(6, 12, 20), ""},
		"the next holder came before":             {madeUp("v", "g-W-0000000002", 6, true, 8, 9), "two at once"},
	} {
		t.Run(name, func(t *testing.T) {
			all := []*holding{writer(5, 0, 15), c.next}
			remove(all[:1], removal)
			requireWrong(t, c.wrong, judgeLock(all))
		})
	}
}

func TestRemovalIsOfTheNodeThatWasThere(t *testing.T) {
	of := func(h *holding, node string, at time.Duration) bool {
		remove([]*holding{h}, event{Lock: "a", Node: node, At: at * time.Millisecond})
		return h.removedAt != 0
	}
	require.True(t, of(writer(5, 10, 20), "h-W-0000000001", 15))
	require.True(t, of(writer(5, 10, 20), "h-R-0000000001", 15), "downgraded")
	require.False(t, of(writer(5, 10, 20), "h-W-0000000002", 15))
	require.False(t, of(writer(5, 10, 20), "g-W-0000000001", 15))
	require.False(t, of(writer(5, 10, 20), "h-W-0000000001", 5), "the removed node had the same name, and was gone before the lock was acquired")
	require.False(t, of(writer(5, 10, 20), "h-W-0000000001", 25), "the removed node had the same name, and was made after the lock was released")
}

func TestJournalsBecomeHoldings(t *testing.T) {
	all := holdings("w", []event{
		{Kind: asked, Hold: 1, Lock: "a", At: 1},
		{Kind: asked, Hold: 2, Lock: "b", At: 2},
		{Kind: refused, Hold: 2, At: 3},
		{Kind: granted, Hold: 1, Mode: "exclusive", Token: 7, Node: "h-W-0000000001", Held: true, At: 4},
		{Kind: confirmed, Hold: 1, At: 6},
		{Kind: downgrading, Hold: 1, At: 5},
		{Kind: released, Hold: 1, Held: true, At: 9},
		{Kind: asked, Hold: 3, Lock: "a", At: 10},
		{Kind: granted, Hold: 3, Mode: "shared", Token: 8, Held: true, At: 11},
		{Kind: confirmed, Hold: 3, At: 12},
		{Kind: lossSeen, Hold: 3, At: 14},
		{Kind: released, Hold: 3, At: 15},
	})
	require.Len(t, all, 2)
	first, second := all[0], all[1]
	require.Equal(t, []time.Duration{4, 9, 5}, []time.Duration{first.from, first.to, first.exclusiveTo()})
	require.Equal(t, []time.Duration{11, 12, 14, 15}, []time.Duration{second.from, second.to, second.lossSeen, second.ended})
}
