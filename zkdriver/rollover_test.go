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

// startsOver uses a queue until its sequences have started over.
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
			require.NoError(t, s.Close())
			removeAll(t, operator, b.chroot+"/q")
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

// The server shows the digests of an ACL only to clients with ADMIN. Other
// clients cannot make the queue again with the same ACL.
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

// A session erases data that was written to the queue's node after the session
// first read it, unless the session has no permission to write to the queue.
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
