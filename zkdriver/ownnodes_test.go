package zkdriver

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestALateAnswerThatAQueueIsNotThereDropsNoNodeMadeSince(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=20s")
	asked := b.own.createdSoFar()
	_, _, err := b.conn.Children(b.settings.queuePath("q"))
	require.ErrorIs(t, err, zk.ErrNoNode)
	// The node was created after the request was sent, so the answer must not
	// make the session forget it.
	p := b.mustCreate("q", "h-W-", "x")
	b.own.queueGone("q", asked)
	b.own.nodeGone("q", p.Name, asked)
	require.True(t, b.own.any())
	_, err = b.Replace(within(t), "q", p, "h-R-")
	require.NoError(t, err)
}
