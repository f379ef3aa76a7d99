package zkdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func isGone(err error) bool { return errors.Is(err, driver.ErrGone) }

func TestFirstDeleteAfterTheQueueWasMadeAnewSparesTheNewNode(t *testing.T) {
	b := newFixture(t, "")
	old := b.mustCreate("q", "h-W-", "old")
	require.NoError(t, b.raw.Delete(b.chroot+"/q/"+old.Name, -1))
	require.NoError(t, b.raw.Delete(b.chroot+"/q", -1))
	fresh := b.mustCreate("q", "h-W-", "new")
	require.Equal(t, old.Name, fresh.Name)
	require.NotEqual(t, old.Epoch, fresh.Epoch)
	require.ErrorIs(t, b.Delete(within(t), "q", old, driver.Changed), driver.ErrGone)
	require.Equal(t, []string{fresh.Name}, b.nodes("q"))
	require.NoError(t, b.Delete(within(t), "q", fresh, driver.Changed))
}

func TestDeleteAfterListMissedTheNodeSparesAForeignOne(t *testing.T) {
	b := newFixture(t, "")
	old := b.mustCreate("q", "h-W-", "old")
	require.NoError(t, b.raw.Delete(b.chroot+"/q/"+old.Name, -1))
	nodes, err := b.List(within(t), "q")
	require.NoError(t, err)
	require.Empty(t, nodes)
	require.NoError(t, b.raw.Delete(b.chroot+"/q", -1))
	fresh, err := create(within(t), b.another(""), "q", "h-W-", []byte("new"))
	require.NoError(t, err)
	require.Equal(t, old.Name, fresh.Name)
	for range 2 {
		require.ErrorIs(t, b.Delete(within(t), "q", old, driver.Changed), driver.ErrGone)
	}
	require.Equal(t, []string{fresh.Name}, b.nodes("q"))
}

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

func TestDeleteOfAnotherSessionsNodeRemovesNothing(t *testing.T) {
	b := newFixture(t, "")
	p, err := create(within(t), b.another(""), "q", "h-W-", []byte("theirs"))
	require.NoError(t, err)
	require.ErrorIs(t, b.Delete(within(t), "q", p, driver.Changed), driver.ErrGone)
	require.Len(t, b.nodes("q"), 1)
}

func TestDeleteWithoutAnAnswerIsRepeated(t *testing.T) {
	b := newFixture(t, "session_timeout=20s")
	for i := range 20 {
		p := b.mustCreate("q", "h-W-", fmt.Sprint(i))
		if i%2 == 0 {
			b.proxy.LoseReply(zktest.Op(zktest.OpDelete))
		} else {
			b.proxy.LoseRequest(zktest.Op(zktest.OpDelete))
		}
		require.ErrorIs(t, b.Delete(within(t), "q", p, driver.Changed), driver.ErrUnavailable)
		err := b.Delete(within(t), "q", p, driver.Changed)
		if i%2 == 0 {
			require.ErrorIs(t, err, driver.ErrGone)
		} else {
			require.NoError(t, err)
		}
		require.Empty(t, b.nodes("q"))
	}
	require.Empty(t, b.own.byToken)
	require.Empty(t, b.own.queues)
}

func TestReplaceKeepsTokenDataAndAge(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("q", "h-W-", "data")
	other := b.another("")
	before, err := other.Read(within(t), "q", p.Name)
	require.NoError(t, err)
	shared, err := b.Replace(within(t), "q", p, "h-R-")
	require.NoError(t, err)
	require.Equal(t, "h-R-0000000000", shared.Name)
	require.Equal(t, []string{shared.Name}, b.nodes("q"))
	after, err := other.Read(within(t), "q", shared.Name)
	require.NoError(t, err)
	before.Name = shared.Name
	require.Equal(t, before, after)
	require.Equal(t, p.Token, after.Token)

	again, err := b.Replace(within(t), "q", shared, "h-X-")
	require.NoError(t, err)
	after, err = other.Read(within(t), "q", again.Name)
	require.NoError(t, err)
	require.Equal(t, p.Token, after.Token)
	require.Equal(t, "data", string(after.Data))
	require.NoError(t, b.Delete(within(t), "q", p, driver.Changed))
	require.Empty(t, b.nodes("q"))
}

func TestReplaceWithoutAnAnswerIsFinishedByRepeatingOrUndoneByDelete(t *testing.T) {
	b := newFixture(t, "session_timeout=20s")
	for i := range 12 {
		p := b.mustCreate("q", "h-W-", fmt.Sprint(i))
		if i%2 == 0 {
			b.proxy.LoseReply(zktest.Op(zktest.OpMulti))
		} else {
			b.proxy.LoseRequest(zktest.Op(zktest.OpMulti))
		}
		_, err := b.Replace(within(t), "q", p, "h-R-")
		require.ErrorIs(t, err, driver.ErrUnavailable)
		if i%3 > 0 {
			r, err := b.Replace(within(t), "q", p, "h-R-")
			require.NoError(t, err)
			require.Equal(t, []string{r.Name}, b.nodes("q"))
			if i%3 > 1 {
				p = r
			}
		}
		require.NoError(t, b.Delete(within(t), "q", p, driver.Changed))
		require.Empty(t, b.nodes("q"))
	}
}

func TestSplitTrailerRemovesWhatWasAppended(t *testing.T) {
	line, guarded := trailer{token: 5, created: 6}.text(), trailer{guarded: true}
	for _, data := range []string{"", "x", "x\n", line, "x" + line, line + line, "x" + line + "y", guarded.text(), "x" + guarded.text(),
		trailerStart, trailerStart + "-1 created=-1", trailerStart + "token=-1 created=-1", trailerStart + "token=05 created=6", trailerStart + "guarded "} {
		got, e, _ := splitTrailer(withTrailer([]byte(data), false))
		require.Equal(t, data, string(got))
		require.Zero(t, e)
		got, e, _ = splitTrailer(withTrailer([]byte(data), true))
		require.Equal(t, data, string(got))
		require.Equal(t, guarded, e)
		got, e, marked := splitTrailer(appendTrailer([]byte(data), trailer{token: 7, created: 8}))
		require.True(t, marked)
		require.Equal(t, data, string(got))
		require.Equal(t, trailer{token: 7, created: 8}, e)
	}
}

func TestDataThatLooksReplacedDoesNotForgeAToken(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("q", "h-W-", "x"+trailer{token: 1 << 60, created: 1}.text())
	info, err := b.Read(within(t), "q", p.Name)
	require.NoError(t, err)
	require.Equal(t, p.Token, info.Token)
	require.Equal(t, "x"+trailer{token: 1 << 60, created: 1}.text(), string(info.Data))
	_, err = b.raw.Set(b.chroot+"/q", []byte{}, -1)
	require.NoError(t, err)
	require.NotErrorIs(t, b.Delete(within(t), "q", p, driver.Changed), zk.ErrNoNode)
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

func TestANodeThatIsRemovedIsForgotten(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("q", "h-W-", "own")
	require.NoError(t, b.Remove(within(t), "q", p))
	require.False(t, b.own.any())
	b.own.mu.Lock()
	defer b.own.mu.Unlock()
	require.Empty(t, b.own.byToken)
}
