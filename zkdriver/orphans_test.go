package zkdriver

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

// warm uses each queue, so that the session's next Create in it is one request.
func (b *fixture) warm(queues ...string) {
	b.t.Helper()
	for _, q := range queues {
		require.NoError(b.t, b.Delete(within(b.t), q, b.mustCreate(q, "h-W-", "warm"), driver.Changed))
	}
}

// loseCreates makes n nodes in each queue, and loses the answers.
func (b *fixture) loseCreates(n int, queues ...string) {
	b.t.Helper()
	hold := b.proxy.HoldReplies(zktest.Op(zktest.OpMulti))
	var creates errgroup.Group
	for i := range n * len(queues) {
		creates.Go(func() error {
			_, err := create(context.Background(), b, queues[i/n], "h-W-", fmt.Append(nil, "lost", i))
			assert.ErrorIs(b.t, err, driver.ErrUnavailable)
			return nil
		})
	}
	for _, q := range queues {
		eventually(b.t, "all nodes are made", func() bool { return len(b.nodes(q)) == n })
	}
	b.proxy.DropConnections()
	hold.Release()
	creates.Wait()
}

func (b *fixture) cleanedUp() {
	b.t.Helper()
	eventually(b.t, "the clean-up is over", func() bool {
		b.orphans.mu.Lock()
		defer b.orphans.mu.Unlock()
		return !b.orphans.running
	})
}

// The time to remove the nodes must not grow with the square of their number.
func TestUnansweredCreatesAreRemovedTogether(t *testing.T) {
	const lost, live = 1000, 20
	b := newFixture(t, "session_timeout=1m")
	b.warm("q")
	before := b.requests()
	b.loseCreates(lost, "q")
	for i := range live {
		b.mustCreate("q", "h-W-", fmt.Sprint("live", i))
	}
	b.cleanedUp()
	require.Len(t, b.nodes("q"), live)
	// One Create per orphan, and at most four requests to find and remove it.
	require.LessOrEqual(t, b.requests()-before, 5*lost)
}

func TestFurtherBreaksDuringTheCleanUpLeaveNothing(t *testing.T) {
	b := newFixture(t, "session_timeout=1m")
	queues := []string{"q", "r", "removed"}
	b.warm(queues...)
	lists := b.proxy.LoseReply(zktest.Op(zktest.OpGetChildren2))
	deletes := b.proxy.LoseReply(zktest.Op(zktest.OpDelete))
	b.loseCreates(20, queues...)
	removeAll(t, b.raw, b.chroot+"/removed")
	var live driver.Place
	tries := 0
	eventually(t, "a node is made", func() (made bool) {
		var err error
		tries++ // distinct data, because orphans are found by it
		live, err = create(within(t), b, "removed", "h-W-", []byte(fmt.Sprint("live", tries)))
		return err == nil
	})
	require.True(t, live.Seq == 0 || tries > 1, "the node has the name of an orphan that was removed")
	closed(t, "a list is lost", lists)
	closed(t, "a delete is lost", deletes)
	b.cleanedUp()
	require.Equal(t, []string{live.Name}, b.nodes("removed"))
	require.Empty(t, b.nodes("q"))
	require.Empty(t, b.nodes("r"))
	require.NoError(t, b.Err())
}

func TestTheCleanUpEndsWithTheSession(t *testing.T) {
	for name, end := range map[string]func(*fixture) error{
		"closed":  func(b *fixture) error { return b.Close() },
		"expired": (*fixture).expire,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, "session_timeout=1m")
			b.warm("q")
			held := b.proxy.HoldReplies(zktest.Op(zktest.OpGetData))
			b.loseCreates(20, "q")
			closed(t, "the search reads a node", held.Held())
			require.NoError(t, end(b))
			held.Release()
			closed(t, "all goroutines have ended", b.conn.Finished())
			require.Empty(t, b.nodes("q"))
		})
	}
}

// The orphan search compares data and would remove the second node, too.
func TestACreateThatMayLeaveANodeIsNotRepeated(t *testing.T) {
	b := newFixture(t, "")
	s := mustConnect(t, "zk://alice:geheim@"+b.proxy.Addr()+b.chroot+"?acl=digest&session_timeout=1m")
	p, err := create(within(t), s, "q", "h-W-", []byte("warm"))
	require.NoError(t, err)
	require.NoError(t, s.Delete(within(t), "q", p, driver.Changed))
	require.NoError(t, b.raw.Delete(b.chroot+"/q", -1))
	_, err = b.raw.Create(b.chroot+"/q", nil, 0, zk.DigestACL(zk.PermAll, "alice", "geheim"))
	require.NoError(t, err)
	lost := b.proxy.LoseRequest(zktest.Op(zktest.OpDelete))
	_, err = create(within(t), s, "q", "h-W-", []byte("x"))
	closed(t, "the new node is not deleted", lost)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	eventually(t, "the queue is empty", func() bool {
		nodes, err := s.List(within(t), "q")
		return err == nil && len(nodes) == 0
	})
}
