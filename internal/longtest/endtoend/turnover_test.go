package endtoend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

// ZooKeeper deletes an empty queue, a container node, and the next lock
// recreates it.
func TestAQueueThatTheServerHasRemovedCostsFourRequestsMore(t *testing.T) {
	w := newFixtureOn(t, zktest.Start(t, zktest.WithContainerCheck(5*time.Millisecond)))
	m := w.client("web1", "").RWMutex("q")
	var token int64
	for _, expected := range []int64{0, 2 + 4, 2 + 4} { // 0: unchecked, since the first Lock costs more
		before := w.server.Requests(t)
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		require.Greater(t, l.Token(), token)
		token = l.Token()
		w.unlock(l)
		if expected > 0 {
			require.Equal(t, expected, w.server.Requests(t)-before)
		}
		w.eventually(func() bool {
			there, _, err := w.raw.Exists(w.path("q"))
			return err == nil && !there
		}, func() string { return "the server does not remove the queue" })
	}
}

func TestForeignNodesDoNotKeepAQueueFromStartingOver(t *testing.T) {
	w := newFixture(t)
	w.made("q")
	w.plant("q", "junk", nil)
	c := w.client("web1", "&sequence_limit=1")
	for range 3 {
		w.unlock(w.lock(c).granted())
	}
	_, _, err := w.raw.Get(w.path("q") + "/junk")
	require.NoError(t, err)
}

// The list of this queue exceeds jute.maxbuffer, which limits only requests,
// not replies.
func TestAHugeQueueIsStillALock(t *testing.T) {
	w := newFixture(t)
	w.made("q")
	const batch, junk, behind = 500, 4000, 500
	for i := 0; i < junk+behind; i += batch {
		var ops []any
		for j := i; j < i+batch; j++ {
			name := fmt.Sprintf("junk%0400dx", j)
			if j >= junk {
				name = fmt.Sprintf("x%0400d-W-9%09d", j, j)
			}
			ops = append(ops, &zk.CreateRequest{Path: w.path("q") + "/" + name, Acl: zk.WorldACL(zk.PermAll)})
		}
		_, err := w.raw.Multi(ops...)
		require.NoError(t, err)
	}
	c := w.client("web1", "")
	lock := w.lock(c).granted()
	next := w.lock(c)
	next.waitsBehind(lock.Node())
	w.unlock(lock)
	w.unlock(next.granted())
	require.Len(t, w.nodes("q"), junk+behind)
}
