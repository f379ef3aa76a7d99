package sqltest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/testenv"
)

// ByHand checks that sessions notice manual changes. The function store returns
// an empty store and a function that runs statements in it. Each statement in
// ending ends the session for which the word ID stands, each in deleting
// deletes all nodes, and each in taking removes what heartbeats need.
func ByHand(t *testing.T, store func(t *testing.T) (c driver.Connector, exec func(string)), ending, deleting, taking []string) {
	for _, text := range slices.Concat(ending, deleting, taking) {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			c, exec := store(t)
			var sessions [2]*session.Session
			var nodes [2]driver.Place
			for i := range sessions {
				sessions[i] = connect(t, c).(*session.Session)
				j, err := sessions[i].Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
				require.NoError(t, err)
				nodes[i] = j.Place
			}
			holder, waiter := sessions[0], sessions[1]
			ahead, err := waiter.Watch(t.Context(), "q", nodes[1], nodes[0].Node)
			require.NoError(t, err)
			defer ahead.Stop()
			own, err := holder.Watch(t.Context(), "q", nodes[0])
			require.NoError(t, err)
			defer own.Stop()
			exec(strings.ReplaceAll(text, "ID", "'"+holder.Describe().ID+"'"))
			if !slices.Contains(taking, text) {
				for _, w := range []driver.Watch{ahead, own} {
					testenv.Receive(t, w.C, "a watch ends")
				}
			}
			if !slices.Contains(deleting, text) {
				_, err := holder.Store().Beat(t.Context())
				assert.ErrorIs(t, err, driver.ErrSessionEnded)
			}
		})
	}
}
