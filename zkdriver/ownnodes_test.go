package zkdriver

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestALateAnswerThatAQueueIsNotThereDropsNoNodeMadeSince(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=20s")
	asked := b.own.addedSoFar()
	_, _, err := b.conn.Children(b.settings.queuePath("q"))
	require.ErrorIs(t, err, zk.ErrNoNode)
	// An answer to an older request must not make the session forget the node.
	p := b.mustCreate("q", "h-W-", "x")
	b.own.queueGone("q", asked)
	b.own.nodeGone("q", p.Name, asked)
	b.own.queueListed("q", p.Epoch, p.Token-1, nil)
	b.own.doubt(b.own.find("q", p.Token), "h-R-0000000000")
	b.own.nodeGone("q", p.Name, b.own.addedSoFar()) // the node may have its new name already
	require.True(t, b.own.any())
	_, err = b.Replace(within(t), "q", p, "h-R-")
	require.NoError(t, err)
}

// remake removes and recreates an empty queue, whose sequence numbers then
// start again at 0.
func (b *fixture) remake(queue string) {
	b.t.Helper()
	path := b.chroot + "/" + queue
	var ops []any
	for _, name := range b.nodes(queue) {
		ops = append(ops, &zk.DeleteRequest{Path: path + "/" + name, Version: -1})
	}
	ops = append(ops, &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
	_, err := b.raw.Multi(ops...)
	require.NoError(b.t, err)
}

// A removal may hit a new node of the same name in a recreated queue.
func TestARemovalInFlightCostsItsSessionNoNewNode(t *testing.T) {
	for name, remove := range map[string]func(*fixture, driver.Place) error{
		"delete":  func(b *fixture, p driver.Place) error { return b.Delete(within(b.t), "q", p, driver.Changed) },
		"release": func(b *fixture, p driver.Place) error { return b.Delete(within(b.t), "q", p, driver.Released) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "session_timeout=1m")
			require.NoError(t, b.Delete(within(t), "q", b.mustCreate("q", "h-W-", "warm"), driver.Changed))
			b.remake("q")
			old := b.mustCreate("q", "h-W-", "old")
			b.remake("q")

			replies := b.proxy.HoldReplies(zktest.Op(zktest.OpMulti))
			type made struct {
				place driver.Place
				err   error
			}
			created, removed := make(chan made, 1), make(chan error, 1)
			go func() {
				p, err := create(within(t), b, "q", "h-W-", []byte("new"))
				created <- made{p, err}
			}()
			closed(t, "the node is made", replies.Held())
			require.Equal(t, []string{old.Name}, b.nodes("q"), "the new node has the name of the old one")
			go func() { removed <- remove(b, old) }()
			eventually(t, "the removal has hit the new node", func() bool { return len(b.nodes("q")) == 0 })
			replies.Release()

			m := <-created
			require.NoError(t, m.err)
			require.Equal(t, []string{m.place.Name}, b.nodes("q"), "the queue holds the node that Create has returned")
			require.ErrorIs(t, <-removed, driver.ErrGone, "the old node was gone before this removal")
			require.NoError(t, b.Delete(within(t), "q", m.place, driver.Changed))
			b.own.mu.Lock()
			defer b.own.mu.Unlock()
			require.Empty(t, b.own.byToken)
			require.Empty(t, b.own.inFlight.queues)
		})
	}
}

// Any client may create a node with any sequence.
func TestAnOldNodeWithAHighSequenceHidesNoOrphan(t *testing.T) {
	for _, seq := range []int64{2147000000, 7} {
		t.Run(fmt.Sprint(seq), func(t *testing.T) {
			b := newFixture(t, "session_timeout=1m")
			require.NoError(t, b.Delete(within(t), "q", b.mustCreate("q", "h-W-", "warm"), driver.Changed))
			hostile := driver.FormatName("h-W-", seq)
			_, err := b.raw.Create(b.chroot+"/q/"+hostile, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			require.NoError(t, b.Delete(within(t), "q", b.mustCreate("q", "h-W-", "later"), driver.Changed))
			lost := b.proxy.LoseReply(zktest.Op(zktest.OpMulti))
			_, err = create(within(t), b, "q", "h-W-", []byte("orphan"))
			require.ErrorIs(t, err, driver.ErrUnavailable)
			closed(t, "the answer is lost", lost)
			eventually(t, "only the hostile node is left", func() bool { return len(b.nodes("q")) == 1 })
			require.Equal(t, []string{hostile}, b.nodes("q"))
		})
	}
}
