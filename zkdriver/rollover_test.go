package zkdriver

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func startsOver(t testing.TB, s *session, queue string) {
	t.Helper()
	var epoch int64
	for i := range 20 {
		p, err := create(within(t), s, queue, "h-W-", fmt.Append(nil, i))
		require.NoError(t, err)
		require.NoError(t, s.Delete(within(t), queue, p, driver.Changed))
		if epoch != 0 && p.Epoch != epoch {
			return
		}
		epoch = p.Epoch
	}
	require.Fail(t, "the sequences do not start over")
}

func TestStartingOverKeepsTheACLAndTheDataOfTheQueue(t *testing.T) {
	for name, data := range map[string][]byte{"no data": nil, "data": []byte("theirs")} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, "")
			operator := b.server.Raw(t)
			require.NoError(t, operator.AddAuth("digest", []byte("alice:geheim")))
			acl := append(zk.WorldACL(zk.PermRead), aliceOnly...)
			_, err := operator.Create(b.chroot+"/q", data, 0, acl)
			require.NoError(t, err)
			containers := b.proxy.Frames(zktest.OpCreateContainer)
			s := mustConnect(t, "zk://alice:geheim@"+b.proxy.Addr()+b.chroot+"?sequence_limit=3")
			startsOver(t, s, "q")
			kept, _, err := operator.GetACL(b.chroot + "/q")
			require.NoError(t, err)
			require.ElementsMatch(t, acl, kept)
			found, _, err := operator.Get(b.chroot + "/q")
			require.NoError(t, err)
			require.Equal(t, string(data), string(found))
			require.Equal(t, containers, b.proxy.Frames(zktest.OpCreateContainer), "the driver has turned an operator's node into a container")
		})
	}
}

func TestStartingOverMakesAContainerOfAContainer(t *testing.T) {
	b := newFixture(t, "sequence_limit=3")
	b.mustCreate("warm", "h-W-", "x")
	containers := b.proxy.Frames(zktest.OpCreateContainer)
	startsOver(t, b.session, "q")
	require.Equal(t, containers+2, b.proxy.Frames(zktest.OpCreateContainer))
}

// Only a client with ADMIN can read the password digests in an ACL.
func TestStartingOverIsRefusedWhereTheACLCannotBeKept(t *testing.T) {
	b := newFixture(t, "sequence_limit=2")
	operator := b.server.Raw(t)
	require.NoError(t, operator.AddAuth("digest", []byte("alice:geheim")))
	acl := append(zk.WorldACL(zk.PermAll&^zk.PermAdmin), aliceOnly...)
	_, err := operator.Create(b.chroot+"/q", nil, 0, acl)
	require.NoError(t, err)
	for i := range 2 {
		require.NoError(t, b.Delete(within(t), "q", b.mustCreate("q", "h-W-", fmt.Sprint(i)), driver.Changed))
	}
	for range 2 {
		_, err = create(within(t), b, "q", "h-W-", []byte("x"))
		require.ErrorIs(t, err, fs.ErrPermission)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "ADMIN")
		require.ErrorContains(t, err, b.chroot+"/q")
	}
	kept, _, err := operator.GetACL(b.chroot + "/q")
	require.NoError(t, err)
	require.ElementsMatch(t, acl, kept)
}

// Create erases such data, unless it may not write to the queue's node.
func TestDataWrittenLaterIsKeptWhereTheQueueMayNotBeWritten(t *testing.T) {
	b := newFixture(t, "")
	require.NoError(t, b.Delete(within(t), "q", b.mustCreate("q", "h-W-", "1"), driver.Changed))
	_, err := b.raw.SetACL(b.chroot+"/q", zk.WorldACL(zk.PermAll&^zk.PermWrite), -1)
	require.NoError(t, err)
	operator := b.server.Raw(t)
	require.NoError(t, operator.AddAuth("digest", []byte("super:zktest")))
	_, err = operator.Set(b.chroot+"/q", []byte("theirs"), -1)
	require.NoError(t, err)
	require.NoError(t, b.Delete(within(t), "q", b.mustCreate("q", "h-W-", "2"), driver.Changed))
	data, _, err := operator.Get(b.chroot + "/q")
	require.NoError(t, err)
	require.Equal(t, "theirs", string(data))
}

// ZooKeeper cannot remove a queue's node while another queue is below it.
func TestSequencesStartOverBesideALockBelow(t *testing.T) {
	b := newFixture(t, "sequence_limit=5")
	other, below := b.another("sequence_limit=5"), b.another("")
	var token, epochs, epoch int64
	for i := range 30 {
		if i%3 == 1 {
			_, err := create(within(t), below, fmt.Sprintf("q/eu/%d", i), "h-W-", []byte("below"))
			require.NoError(t, err)
		}
		p := b.mustCreate("q", "h-W-", fmt.Sprint(i))
		require.Less(t, p.Seq, int64(5))
		require.Greater(t, p.Token, token)
		require.GreaterOrEqual(t, p.Epoch, epoch)
		if p.Epoch != epoch {
			epochs++
		}
		token, epoch = p.Token, p.Epoch
		for _, s := range []*session{b.session, other} { // other creates no nodes
			nodes, err := s.List(within(t), "q")
			require.NoError(t, err)
			require.Equal(t, []driver.Node{p.Node}, nodes)
		}
		queues, err := other.Walk(within(t), "q")
		require.NoError(t, err)
		require.Contains(t, queues, "q")
		require.NotContains(t, queues, successorOf("q"))
		info, err := other.Read(within(t), "q", p.Name)
		require.NoError(t, err)
		require.Equal(t, p.Node, info.Node)
		require.NoError(t, b.Delete(within(t), "q", p, driver.Released))
	}
	require.GreaterOrEqual(t, epochs, int64(6))
	require.NoError(t, below.Close())
	removeAll(t, b.raw, b.chroot+"/q")
	require.Zero(t, b.mustCreate("q", "h-W-", "again").Seq)
	require.Len(t, b.nodes("q"), 1, "the contenders are in the queue's own node again")
}

func (b *fixture) endsSequences(queue string, limit int) {
	b.t.Helper()
	b.mustCreate(queue+"/below", "h-W-", "below")
	for i := range limit - 1 { // the queue below counts as one node
		require.NoError(b.t, b.Delete(within(b.t), queue, b.mustCreate(queue, "h-W-", fmt.Sprint(i)), driver.Changed))
	}
}

func TestSessionsAgreeWhereAQueueGoesOn(t *testing.T) {
	b := newFixture(t, "sequence_limit=4")
	other := b.another("sequence_limit=4")
	b.endsSequences("q", 3)
	held, err := create(within(t), other, "q", "h-W-", []byte("held"))
	require.NoError(t, err)
	require.EqualValues(t, 3, held.Seq)
	late := b.another("sequence_limit=4")
	for range 2 {
		for _, s := range []*session{b.session, other, late} {
			_, err = create(within(t), s, "q", "h-W-", []byte("late"))
			require.ErrorIs(t, err, driver.ErrUnavailable, "the queue starts over while a contender holds the lock")
		}
	}
	require.NoError(t, other.Delete(within(t), "q", held, driver.Released))

	first := b.mustCreate("q", "h-W-", "first")
	require.Greater(t, first.Epoch, held.Epoch)
	require.Greater(t, first.Token, held.Token)
	for i, s := range []*session{other, late} {
		p, err := create(within(t), s, "q", "h-W-", fmt.Append(nil, i))
		require.NoError(t, err)
		require.Equal(t, first.Epoch, p.Epoch)
		nodes, err := s.List(within(t), "q")
		require.NoError(t, err)
		require.Equal(t, first.Node, nodes[0])
		require.Len(t, nodes, i+2)
		w, err := s.Watch(within(t), "q", p, first.Node)
		require.NoError(t, err)
		if i == 1 {
			require.NoError(t, b.Delete(within(t), "q", first, driver.Released))
			require.Equal(t, driver.Released, causeOf(t, w.C))
		}
	}
	require.ErrorIs(t, b.Delete(within(t), "q", held, driver.Released), driver.ErrGone)
}

func TestASuccessorBesideFreshSequencesIsNotUsed(t *testing.T) {
	b := newFixture(t, "sequence_limit=4")
	other := b.another("sequence_limit=4")
	b.endsSequences("q", 4)
	moved := b.mustCreate("q", "h-W-", "moved")
	for _, restore := range []bool{true, false} {
		removeAll(t, b.raw, b.chroot+"/q")
		if restore {
			for _, path := range []string{"q", successorOf("q")} {
				_, err := b.raw.Create(b.chroot+"/"+path, nil, 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
			}
		}
		nodes, err := other.List(within(t), "q")
		require.NoError(t, err)
		require.Empty(t, nodes)
		fresh, err := create(within(t), other, "q", "h-W-", []byte("fresh"))
		require.NoError(t, err)
		require.Contains(t, b.nodes("q"), fresh.Name)
		p := b.mustCreate("q", "h-W-", "next")
		require.Equal(t, fresh.Epoch, p.Epoch)
		nodes, err = b.List(within(t), "q")
		require.NoError(t, err)
		require.Equal(t, []driver.Node{fresh.Node, p.Node}, nodes)
		require.ErrorIs(t, b.Delete(within(t), "q", moved, driver.Released), driver.ErrGone)
		b.queues.moved.Store("q", moved.Epoch)
	}
}

// The Cversion overflows after more than a billion nodes.
func TestTheCountOfCreatedNodesIsReadFromTheStat(t *testing.T) {
	s := &session{settings: &settings{sequenceLimit: maxSequence}}
	for created, want := range map[int64]bool{
		0: false, 1 << 30: false, maxSequence - 1: false, maxSequence: true, 1<<31 - 1: true,
	} {
		for _, children := range []int64{0, 1, 7} {
			stat := &zk.Stat{NumChildren: int32(children), Cversion: int32(uint32(2*created - children))}
			require.Equal(t, want, s.usedUp(stat), "%d created, %d left", created, children)
		}
	}
}
