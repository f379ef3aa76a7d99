package session

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// An operator may give the name of one node and the token of another.
func TestRemoveTakesNoNodeOfAnotherNameOrToken(t *testing.T) {
	q := Queue{Nodes: []Row{{Name: "legacy-0000000003"}}}
	own, err := q.Apply(Change{Kind: Create, Prefix: "a-W-"}, "me", 7)
	require.NoError(t, err)
	for _, p := range []driver.Place{
		{Node: driver.Node{Name: "legacy-0000000003"}, Token: own.Token},
		{Node: driver.Node{Name: own.Name}},
	} {
		_, err := q.Apply(Change{Kind: Remove, Place: p}, "me", 8)
		assert.ErrorIs(t, err, driver.ErrGone)
	}
	assert.Len(t, q.Nodes, 2)
}
