package zkdriver

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// Only a node's own session may write to it, but every user of the queue with
// DELETE may remove it.
func TestAUserOfTheQueueMayRemoveItsNodes(t *testing.T) {
	for _, mode := range []string{"open", "creator", "digest"} {
		h := newACLFixture(t, mode)
		operator := mustConnect(t, h.dsn("alice:geheim@")+"?acl="+mode)
		require.NoError(t, operator.Remove(within(t), h.queue, h.place), mode)
		require.ErrorIs(t, h.alice.Delete(within(t), h.queue, h.place, driver.Released), driver.ErrGone)
	}
}

func TestRemoveNeedsDELETEOnTheQueue(t *testing.T) {
	h := newACLFixture(t, "open")
	_, err := h.owner.SetACL(h.queuePath(), zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermAdmin), -1)
	require.NoError(t, err)
	err = mustConnect(t, h.dsn("")).Remove(within(t), h.queue, h.place)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "DELETE on the queue")
	_, _, err = h.owner.Get(h.nodePath())
	require.NoError(t, err)
}

func TestRemoveRefusesNamesThatAreNoNodes(t *testing.T) {
	b := newFixture(t, "")
	for _, name := range []string{"", ".", "..", "a/b", "x\x00", strings.Repeat("\U0001F512", 2)} {
		require.ErrorIs(t, b.Remove(within(t), "q", driver.Place{Node: driver.Node{Name: name}}), driver.ErrBadName, "%q", name)
	}
}

func TestANodeThatIsRemovedIsForgotten(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("q", "h-W-", "own")
	require.NoError(t, b.Remove(within(t), "q", p))
	require.False(t, b.own.any())
	b.own.mu.Lock()
	defer b.own.mu.Unlock()
	require.Empty(t, b.own.byToken)
}
