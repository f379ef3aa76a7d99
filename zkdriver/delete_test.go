package zkdriver

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

func TestNodesThatOthersRemoveAreForgotten(t *testing.T) {
	b := newFixture(t, "")
	forgotten := func() bool {
		b.own.mu.Lock()
		defer b.own.mu.Unlock()
		return len(b.own.byToken) == 0 && len(b.own.queues) == 0
	}
	p := b.mustCreate("q", "h-W-", "watched")
	c := b.mustWatch(within(t), "q", p.Name)
	require.NoError(t, b.raw.Delete(b.chroot+"/q/"+p.Name, -1))
	ended(t, c)
	require.True(t, forgotten())
	p = b.mustCreate("q", "h-W-", "removed")
	require.NoError(t, b.Remove(within(t), "q", p))
	require.True(t, forgotten())

	for _, whole := range []bool{false, true} {
		p = b.mustCreate("q", "h-W-", fmt.Sprint("listed", whole))
		require.NoError(t, b.raw.Delete(b.chroot+"/q/"+p.Name, -1))
		if whole {
			require.NoError(t, b.raw.Delete(b.chroot+"/q", -1))
		}
		_, err := b.raw.Sync(b.chroot)
		require.NoError(t, err)
		_, err = b.List(within(t), "q")
		require.NoError(t, err)
		require.True(t, forgotten())
		require.ErrorIs(t, b.Delete(within(t), "q", p, driver.Changed), driver.ErrGone)
	}
}

func TestReplaceKeepsAllButTheName(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("q", "h-W-", "data")
	other := b.another("")
	want, err := other.Read(within(t), "q", p.Name)
	require.NoError(t, err)
	for _, prefix := range []string{"h-R-", "h-X-"} {
		p, err = b.Replace(within(t), "q", p, prefix)
		require.NoError(t, err)
		got, err := other.Read(within(t), "q", p.Name)
		require.NoError(t, err)
		want.Name = p.Name
		require.Equal(t, want, got)
	}
}

func TestDataThatLooksReplacedDoesNotForgeAToken(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("q", "h-W-", "x"+trailer{token: 1 << 60, created: 1}.text())
	info, err := b.Read(within(t), "q", p.Name)
	require.NoError(t, err)
	require.Equal(t, p.Token, info.Token)
	require.Equal(t, "x"+trailer{token: 1 << 60, created: 1}.text(), string(info.Data))
}

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
