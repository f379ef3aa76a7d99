package zkdriver

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

// crowded is a session in whose queue "q" another session's node stands.
func crowded(t *testing.T) (b *bench, other *session, first driver.Place) {
	t.Helper()
	b = newBench(t, "session_timeout=1m")
	t.Cleanup(func() { b.Close() })
	other = b.another("session_timeout=1m")
	t.Cleanup(func() { other.Close() })
	first, err := other.Create(within(t), "q", "web2-R-", []byte("first"))
	require.NoError(t, err)
	return b, other, first
}

// turn makes a node, lists the queue and removes the node, as a reader does among
// readers.
func (b *bench) turn(data string) (lists int) {
	b.t.Helper()
	before := b.proxy.Frames(zktest.OpGetChildren2)
	p := b.mustCreate("q", "web1-R-", data)
	require.False(b.t, p.Alone)
	require.Contains(b.t, b.names(), p.Name)
	require.NoError(b.t, b.Delete(within(b.t), "q", p))
	return b.proxy.Frames(zktest.OpGetChildren2) - before
}

func (b *bench) names() (names []string) {
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

// made makes a node with a list behind it, and returns when the list was answered.
func (b *bench) made(data string) driver.Place {
	b.t.Helper()
	before := b.link.received.Load()
	p := b.mustCreate("q", "web1-R-", data)
	eventually(b.t, "the list behind the create", func() bool { return b.link.received.Load() == before+2 })
	return p
}

func TestAListIsSentBehindACreateAmongOthersAndListReturnsIt(t *testing.T) {
	b, _, first := crowded(t)
	require.Equal(t, 1, b.turn("a")) // nothing is known of the queue yet
	held := b.proxy.HoldReplies(zktest.Op(zktest.OpMulti))
	sent := listed(b.proxy)
	var p driver.Place
	made := make(chan error)
	go func() {
		var err error
		p, err = b.Create(within(t), "q", "web1-R-", []byte("b"))
		made <- err
	}()
	<-held.Held()
	eventually(t, "a list before the answer to the Create", sent)
	held.Release()
	require.NoError(t, <-made)
	requests := b.proxy.Requests()
	require.Equal(t, []string{first.Name, p.Name}, b.names())
	require.Equal(t, requests, b.proxy.Requests(), "it was asked for twice")
	b.names()
	require.Equal(t, requests+1, b.proxy.Requests(), "it was used twice")
	require.NoError(t, b.Delete(within(t), "q", p))
}

func TestNoListIsSentBehindACreateThatWasAlone(t *testing.T) {
	b, other, first := crowded(t)
	b.turn("a")
	require.NoError(t, other.Delete(within(t), "q", first))
	for i := range 3 {
		sent := listed(b.proxy)
		p := b.mustCreate("q", "web1-R-", string(rune('b'+i)))
		require.NoError(t, b.Delete(within(t), "q", p))
		require.Equal(t, i == 0, sent(), "only before it is known that the others have gone")
	}
}

func TestAPrefetchIsDroppedOnceTheSessionHasDoneMore(t *testing.T) {
	b, _, first := crowded(t)
	b.turn("a")
	p := b.made("b")
	require.NoError(t, b.Delete(within(t), "q", p))
	require.Equal(t, []string{first.Name}, b.names())
}

func TestAPrefetchIsDroppedOnceTheSessionHasSeenMore(t *testing.T) {
	b, other, first := crowded(t)
	b.turn("a")
	gone, err := b.Watch(within(t), "q", first.Name)
	require.NoError(t, err)
	b.crowds.eager = true
	p := b.made("b")
	require.NoError(t, other.Delete(within(t), "q", first))
	<-gone
	require.Equal(t, []string{p.Name}, b.names())
}

func TestAPrefetchIsDroppedWithItsConnection(t *testing.T) {
	b, _, first := crowded(t)
	b.turn("a")
	held := b.proxy.HoldReplies(zktest.Op(zktest.OpGetChildren2))
	p := b.mustCreate("q", "web1-R-", "b")
	<-held.Held()
	ended := make(chan error)
	go func() {
		_, err := b.List(within(t), "q")
		ended <- err
	}()
	select {
	case <-ended:
		t.Fatal("a list without an answer")
	case <-time.After(20 * time.Millisecond): // it may not have been called yet: that does not matter
	}
	b.proxy.DropConnections()
	held.Release()
	if err := <-ended; err != nil { // it asked anew, on the connection that was breaking
		require.ErrorIs(t, err, driver.ErrUnavailable)
	}
	require.Equal(t, []string{first.Name, p.Name}, b.names())
}

// If the connection breaks between the create and the list, go-zookeeper sends the
// list on the next one.
func TestAPrefetchOnAnotherConnectionIsDropped(t *testing.T) {
	b, _, first := crowded(t)
	b.names() // the server is reached
	p, list := b.delayed("a")
	b.proxy.DropConnections()
	b.reconnected()
	list.start()
	closed(t, "the list is answered", list.done)
	require.NoError(t, list.err)
	require.Zero(t, list.received.Load())
	b.link.prefetches.keep(list)
	requests := b.proxy.Requests()
	require.Equal(t, []string{first.Name, p.Name}, b.names())
	require.Equal(t, requests+1, b.proxy.Requests(), "it was used")
}

// Two goroutines make nodes in one queue, and the list of the second one is sent
// first.
func TestAPrefetchIsDroppedAfterALaterListOfTheSession(t *testing.T) {
	b, other, first := crowded(t)
	p1, list1 := b.delayed("a")
	p2, list2 := b.delayed("b")
	list2.start()
	closed(t, "a list is answered", list2.done)
	require.Contains(t, list2.names, first.Name)
	require.NoError(t, other.Delete(within(t), "q", first))
	list1.start()
	closed(t, "a list is answered", list1.done)
	require.NotContains(t, list1.names, first.Name)
	b.link.prefetches.keep(list2)
	require.Equal(t, []string{p1.Name, p2.Name}, b.names())
}

// delayed makes a node, and has the caller start the list behind it.
func (b *bench) delayed(data string) (driver.Place, *prefetch) {
	b.t.Helper()
	list := b.prefetch(b.settings.queuePath("q"), []byte(data))
	start, started := list.start, make(chan struct{})
	list.start = func() { close(started) }
	p := b.mustCreate("q", "web1-R-", data)
	closed(b.t, "the list is due", started)
	list.start = start
	return p, list
}

// reconnected waits until the session has another connection.
func (b *bench) reconnected() {
	b.t.Helper()
	eventually(b.t, "a second connection", func() bool { return b.link.generation.Load() == 2 })
}

func TestACreateThatWasNotWrittenHasNoListBehindIt(t *testing.T) {
	var ps prefetches
	p := &prefetch{behind: []byte("data of the create")}
	ps.expect(p)
	require.Nil(t, ps.sent([]byte("another request")))
	require.Same(t, p, ps.sent([]byte("a create with data of the create")))
	require.Nil(t, ps.sent([]byte("a create with data of the create")), "twice")
	ps.expect(p)
	ps.forget(p)
	ps.forget(p)
	require.Nil(t, ps.sent([]byte("a create with data of the create")))
}

func TestAListThatWaitsForAPrefetchCanBeGivenUp(t *testing.T) {
	for name, end := range map[string]func(b *bench, cancel func()){
		"cancelled": func(_ *bench, cancel func()) { cancel() },
		"closed":    func(b *bench, _ func()) { go b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b, _, _ := crowded(t)
			b.turn("a")
			held := b.proxy.HoldReplies(zktest.Op(zktest.OpGetChildren2))
			defer held.Release()
			b.mustCreate("q", "web1-R-", "b")
			<-held.Held()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error)
			go func() {
				_, err := b.List(ctx, "q")
				ended <- err
			}()
			end(b, cancel)
			require.Error(t, <-ended)
		})
	}
}

func TestWherePrefetchesAreOfNoUseTheyBecomeRare(t *testing.T) {
	var cs crowds
	require.False(t, cs.expected("q"), "nothing is known")
	cs.met("q", true)
	follows := func(n int, hindered bool) (at []int) {
		for i := range n {
			if cs.expected("q") {
				at = append(at, i)
				if hindered {
					cs.hindered("q")
				}
			}
			cs.met("q", true)
		}
		return at
	}
	require.Equal(t, []int{0, 1, 2, 3}, follows(4, false))
	require.Equal(t, []int{0, 2, 5, 10, 19, 36, 69, 134, 199}, follows(200, true))
	useful := follows(300, false)
	require.Equal(t, []int{296, 297, 298, 299}, useful[len(useful)-4:], "of use again")
	cs.met("q", false)
	require.False(t, cs.expected("q"), "nobody was there")
	require.False(t, cs.expected("other"))
	require.False(t, slices.Contains(follows(1, false), 0), "of no use where nobody is")
}

func TestCrowdsAreForgottenWhenTheyAreTooMany(t *testing.T) {
	var cs crowds
	for i := range 3 * maxKnown {
		cs.met(string(rune(i)), true)
	}
	require.LessOrEqual(t, len(cs.queues), maxKnown)
	for i := range 3 * maxKnown {
		cs.met(string(rune(1e6+i)), false)
	}
	require.LessOrEqual(t, len(cs.queues), maxKnown)
}
