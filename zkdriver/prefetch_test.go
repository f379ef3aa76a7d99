package zkdriver

import (
	"context"
	"slices"
	"testing"

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

func TestAListIsSentBehindACreateAmongOthers(t *testing.T) {
	b, _, first := newSharedQueue(t)
	require.False(t, b.join("a").Known, "the session knows nothing of the queue yet")
	own := b.names()[1]
	held := b.proxy.HoldReplies(zktest.Op(zktest.OpMulti))
	sent := listed(b.proxy)
	requests := b.proxy.Requests()
	var j driver.Joined
	made := make(chan error)
	go func() {
		var err error
		j, err = b.Create(within(t), "q", driver.NodeSpec{Prefix: "web1-R-", Data: []byte("b")})
		made <- err
	}()
	<-held.Held()
	eventually(t, "a list before the answer to the Create", sent)
	held.Release()
	require.NoError(t, <-made)
	require.Equal(t, requests+2, b.proxy.Requests())
	require.True(t, j.Known)
	require.Len(t, j.Ahead, 2)
	require.Equal(t, first.Node, j.Ahead[0])
	require.Equal(t, own, j.Ahead[1].Name)
}

func TestNoListIsSentBehindACreateThatWasAlone(t *testing.T) {
	b, other, first := newSharedQueue(t)
	require.NoError(t, b.Delete(within(t), "q", b.join("a").Place, driver.Changed))
	require.NoError(t, other.Delete(within(t), "q", first, driver.Changed))
	for i := range 3 {
		sent := listed(b.proxy)
		j := b.join(string(rune('b' + i)))
		require.True(t, j.Alone())
		require.NoError(t, b.Delete(within(t), "q", j.Place, driver.Changed))
		require.Equal(t, i == 0, sent(), "a list is sent only until the session knows that no other node is left")
	}
}

// If the connection breaks before the list arrives, Create still succeeds,
// because the node was created.
func TestAListThatIsLostWithItsConnectionIsNotUsed(t *testing.T) {
	b, _, first := newSharedQueue(t)
	own := b.join("a")
	held := b.proxy.HoldReplies(zktest.Op(zktest.OpGetChildren2))
	made := make(chan driver.Joined, 1)
	go func() {
		j, err := b.Create(within(t), "q", driver.NodeSpec{Prefix: "web1-R-", Data: []byte("b")})
		if err != nil {
			t.Error(err)
		}
		made <- j
	}()
	<-held.Held()
	b.proxy.DropConnections()
	held.Release()
	j := <-made
	require.False(t, j.Known)
	require.Equal(t, []string{first.Name, own.Name, j.Name}, b.names())
}

// If the connection breaks between the create and the list, go-zookeeper sends
// the list on the next connection.
func TestAPrefetchOnAnotherConnectionShowsTheNode(t *testing.T) {
	b, _, first := newSharedQueue(t)
	b.names() // waits for a connection
	list := b.prefetch("q", []byte("a"))
	start, started := list.send, make(chan struct{})
	list.send = func() { close(started) }
	j := b.join("a")
	closed(t, "the list is due", started)
	b.proxy.DropConnections()
	eventually(t, "a second connection", func() bool { return b.conn.Connection() == 2 })
	start()
	ahead, _, known := b.prefetched("q", list, j.Node)
	require.True(t, known)
	require.Equal(t, []driver.Node{first.Node}, ahead)
	_, _, known = b.prefetched("q", list, driver.Node{Name: "web1-R-0000000099", Seq: 99, Epoch: j.Epoch})
	require.False(t, known, "a list without the node is not used")
}

func TestACreateThatWaitsForItsListCanBeGivenUp(t *testing.T) {
	for name, end := range map[string]func(b *fixture, cancel func()){
		"cancelled": func(_ *fixture, cancel func()) { cancel() },
		"closed":    func(b *fixture, _ func()) { go b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b, _, first := newSharedQueue(t)
			own := b.join("a")
			held := b.proxy.HoldReplies(zktest.Op(zktest.OpGetChildren2))
			defer held.Release()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() {
				_, err := b.Create(ctx, "q", driver.NodeSpec{Prefix: "web1-R-", Data: []byte("b")})
				ended <- err
			}()
			<-held.Held()
			end(b, cancel)
			require.Error(t, <-ended)
			held.Release()
			want := []string{first.Name}
			if name == "cancelled" {
				want = append(want, own.Name)
			}
			eventually(t, "the node is removed", func() bool {
				names := b.nodes("q")
				slices.Sort(names)
				slices.Sort(want)
				return slices.Equal(names, want)
			})
		})
	}
}

func TestUselessPrefetchesBecomeRare(t *testing.T) {
	var cs prefetchPolicy
	require.False(t, cs.worthwhile("q"), "the session knows nothing of the queue yet")
	cs.created("q", true)
	prefetches := func(n int, useless bool) (at []int) {
		for i := range n {
			if cs.worthwhile("q") {
				at = append(at, i)
				if useless {
					cs.useless("q")
				}
			}
			cs.created("q", true)
		}
		return at
	}
	require.Equal(t, []int{0, 1, 2, 3}, prefetches(4, false))
	require.Equal(t, []int{0, 2, 5, 10, 19, 36, 69, 134, 199}, prefetches(200, true))
	useful := prefetches(300, false)
	require.Equal(t, []int{296, 297, 298, 299}, useful[len(useful)-4:], "every create has a prefetch again, because prefetches are useful again")
	cs.created("q", false)
	require.False(t, cs.worthwhile("q"), "the queue had no other node")
	require.False(t, cs.worthwhile("other"))
	require.False(t, slices.Contains(prefetches(1, false), 0), "no other node, no prefetch")
}

func TestQueueHistoriesAreBounded(t *testing.T) {
	var cs prefetchPolicy
	for i := range 3 * maxKnown {
		cs.created(string(rune(i)), true)
	}
	require.LessOrEqual(t, len(cs.queues), maxKnown)
	for i := range 3 * maxKnown {
		cs.created(string(rune(1e6+i)), false)
	}
	require.LessOrEqual(t, len(cs.queues), maxKnown)
}
