package shards

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock"
)

func names(r *rand.Rand, m int) (nodes []string) {
	for i := range m {
		nodes = append(nodes, fmt.Sprintf("web%d-R-%010d", r.IntN(20), 100*i+r.IntN(100)))
	}
	return nodes
}

func TestEachMemberGetsAtMostItsPartRoundedUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		m, n := 1+r.IntN(20), 1+r.IntN(100)
		loads := make([]int, m)
		for _, owner := range assign(names(r, m), n) {
			loads[owner]++
		}
		assert.LessOrEqual(t, slices.Max(loads), (n+m-1)/m, "%d members, %d shards", m, n)
	}
	assert.Empty(t, assign(nil, 3))
}

// If assign changed, processes of two versions would disagree.
func TestTheAssignmentNeverChanges(t *testing.T) {
	members := []string{"web1-R-0000000000", "web2-R-0000000001", "web1-R-0000000002"}
	assert.Equal(t, []int{1, 0, 2, 1, 0, 0, 2, 1, 2, 1}, assign(members, 10))
}

// About n/m shards should move, and some more because assign limits a member's
// load.
func TestAboutOnePartMovesOnAChange(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const changes = 30
	for _, c := range []struct{ n, m int }{{16, 2}, {64, 2}, {64, 5}, {64, 8}, {256, 10}} {
		total, most := 0, 0
		for range changes {
			members := names(r, c.m)
			gone := r.IntN(c.m)
			fewer := slices.Delete(slices.Clone(members), gone, gone+1)
			moved := 0
			before, after := assign(members, c.n), assign(fewer, c.n)
			for i := range before {
				if members[before[i]] != fewer[after[i]] {
					moved++
				}
			}
			total, most = total+moved, max(most, moved)
		}
		part := (c.n + c.m - 1) / c.m
		t.Logf("%d shards, %d members: %.2f parts move on average, at most %d of %d", c.n, c.m,
			float64(total)/changes/float64(part), most, part)
		assert.LessOrEqual(t, total, changes*part*7/4, "%+v", c)
		assert.LessOrEqual(t, most, 3*part, "%+v", c)
	}
}

func TestOnlyReadersThatHoldAreMembers(t *testing.T) {
	assert.Equal(t, []string{"a", "b"}, members([]dlock.Contender{
		{Node: "a", Mode: dlock.Shared, Holds: true},
		{Node: "b", Mode: dlock.Shared, Holds: true},
		{Node: "c", Mode: dlock.Exclusive},
		{Node: "d", Mode: dlock.Shared},
	}))
	assert.Empty(t, members([]dlock.Contender{{Node: "c", Mode: dlock.Exclusive, Holds: true}}))
}
