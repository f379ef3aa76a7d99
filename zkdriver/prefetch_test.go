package zkdriver

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func newSharedQueue(t *testing.T) (b *fixture, other *session, first driver.Place) {
	t.Helper()
	b = newFixture(t, "session_timeout=1m")
	t.Cleanup(func() { b.Close() })
	other = b.another("session_timeout=1m")
	t.Cleanup(func() { other.Close() })
	first, err := create(within(t), other, "q", "web2-R-", []byte("first"))
	require.NoError(t, err)
	return b, other, first
}

func (b *fixture) join(data string) driver.Joined {
	b.t.Helper()
	j, err := b.Create(within(b.t), "q", driver.NodeSpec{Prefix: "web1-R-", Data: []byte(data)})
	require.NoError(b.t, err)
	return j
}

func (b *fixture) joining(data string) <-chan driver.Joined {
	made := make(chan driver.Joined, 1)
	go func() {
		j, err := b.Create(within(b.t), "q", driver.NodeSpec{Prefix: "web1-R-", Data: []byte(data)})
		assert.NoError(b.t, err)
		made <- j
	}()
	return made
}

func (b *fixture) names() (names []string) {
	b.t.Helper()
	nodes, err := b.List(within(b.t), "q")
	require.NoError(b.t, err)
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

func listed(p *zktest.Proxy) func() bool {
	before := p.Frames(zktest.OpGetChildren2)
	return func() bool { return p.Frames(zktest.OpGetChildren2) > before }
}

// learnShared makes the session send a list behind its next create.
func (b *fixture) learnShared() (own string) {
	b.t.Helper()
	require.False(b.t, b.join("a").Known, "the session knows nothing of the queue yet")
	return b.names()[1]
}

func TestAListIsSentBehindACreateAmongOthers(t *testing.T) {
	b, _, first := newSharedQueue(t)
	own := b.learnShared()
	held := b.proxy.HoldReplies(zktest.Op(zktest.OpMulti))
	sent, requests := listed(b.proxy), b.proxy.Requests()
	made := b.joining("b")
	<-held.Held()
	eventually(t, "a list before the answer to the Create", sent)
	held.Release()
	j := <-made
	require.Equal(t, requests+2, b.proxy.Requests())
	require.True(t, j.Known)
	require.Len(t, j.Ahead, 2)
	require.Equal(t, first.Node, j.Ahead[0])
	require.Equal(t, own, j.Ahead[1].Name)
}

func TestNoListIsSentBehindACreateAfterOneThatWaited(t *testing.T) {
	b, _, first := newSharedQueue(t)
	b.learnShared()
	j := b.join("b")
	require.True(t, j.Known)
	_, err := b.Watch(within(t), "q", j.Place, first.Node)
	require.NoError(t, err)
	sent := listed(b.proxy)
	require.False(t, b.join("c").Known)
	require.False(t, sent())
}

func TestNoListIsSentBehindACreateAfterOneThatWasAlone(t *testing.T) {
	b, other, first := newSharedQueue(t)
	require.NoError(t, b.Delete(within(t), "q", b.join("a").Place, driver.Changed))
	b.names()
	require.NoError(t, other.Delete(within(t), "q", first, driver.Changed))
	for i := range 3 {
		sent := listed(b.proxy)
		j := b.join(string(rune('b' + i)))
		require.True(t, j.Alone())
		require.NoError(t, b.Delete(within(t), "q", j.Place, driver.Changed))
		require.Equal(t, i == 0, sent(), "a list is sent only until the session knows that no other node is left")
	}
}

func TestAListThatIsLostWithItsConnectionIsNotUsed(t *testing.T) {
	b, _, first := newSharedQueue(t)
	own := b.learnShared()
	held := b.proxy.HoldReplies(zktest.Op(zktest.OpGetChildren2))
	made := b.joining("b")
	<-held.Held()
	b.proxy.DropConnections()
	held.Release()
	j := <-made
	require.False(t, j.Known)
	require.Equal(t, []string{first.Name, own, j.Name}, b.names())
}

func TestACreateThatWaitsForItsListEndsWithTheSession(t *testing.T) {
	b, _, first := newSharedQueue(t)
	b.learnShared()
	held := b.proxy.HoldReplies(zktest.Op(zktest.OpGetChildren2))
	ended := make(chan error)
	go func() {
		_, err := b.Create(context.Background(), "q", driver.NodeSpec{Prefix: "web1-R-", Data: []byte("b")})
		ended <- err
	}()
	<-held.Held()
	go b.Close()
	require.ErrorIs(t, <-ended, driver.ErrSessionEnded)
	held.Release()
	eventually(t, "the node is removed", func() bool { return slices.Equal(b.nodes("q"), []string{first.Name}) })
}
