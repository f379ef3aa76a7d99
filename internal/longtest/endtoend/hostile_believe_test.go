package endtoend_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

func (w *fixture) login(user string) *zk.Conn {
	w.Helper()
	c := zktest.Dial(w, quiet, w.server.Addr())
	require.NoError(w, c.AddAuth("digest", []byte(user)))
	return c
}

// listedQueue waits until the call has listed the queue n times without being
// granted the lock.
func (k *contender) listedQueue(n int) {
	k.w.Helper()
	k.w.eventually(func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		select {
		case <-k.done:
			return true
		default:
			return len(k.waiting) >= n
		}
	}, func() string { return fmt.Sprintf("it did not look at the queue %d times", n) })
	k.waits()
}

// A superuser can forge the write that announces a release. With handover=list
// a waiter lists the queue after such a write, so that the forgery grants it
// nothing.
func TestAWriteToAHoldersNodeGrantsNothingIfWaitersList(t *testing.T) {
	for _, handover := range []string{"release", "list"} { // the holder's setting; the waiter always has handover=list
		t.Run("holder with handover="+handover, func(t *testing.T) {
			w := newFixture(t)
			holder := w.open(w.dsn(w.server.Addr(), "session_timeout="+quiet.String()+"&handover="+handover), "web1")
			waiter := w.open(w.dsn(w.server.Addr(), "session_timeout="+quiet.String()+"&handover=list"), "web2")
			watches := w.server.Watches()
			lock := w.lock(holder).granted()
			w.watched(watches, 1) // the holder's own watch
			k := w.lock(waiter)
			k.waitsBehind(lock.Node())
			w.watched(watches, 3) // one for the holder, two for the waiter
			_, err := w.login("super:zktest").Set(w.path("q")+"/"+lock.Node(), []byte("\n#dlock guarded"), -1)
			require.NoError(t, err)
			k.listedQueue(2)
			require.NoError(t, lock.Err())
			_ = lock.Unlock()
			w.unlock(k.granted())
		})
	}
}

// An attacker that may create nodes can make its own node look released. A
// waiter behind that node must not be misled. The cases differ in the queue's
// ACL, which an operator may change later.
func TestAForgedReleaseOfAnAttackersNodeGrantsNothing(t *testing.T) {
	const alice = "alice:geheim"
	strict := zk.DigestACL(zk.PermAll, "alice", "geheim")
	adds := append(zk.WorldACL(zk.PermRead|zk.PermCreate), strict...)
	for name, acl := range map[string]struct{ first, later []zk.ACL }{
		"may add":     {first: adds},
		"could add":   {first: adds, later: append(zk.WorldACL(zk.PermRead), strict...)},
		"adds, asked": {first: append(zk.WorldACL(zk.PermRead), strict...), later: adds},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			operator := w.login(alice)
			_, err := operator.Create(w.path("q"), nil, 0, acl.first)
			require.NoError(t, err)
			dsn := strings.Replace(w.dsn(w.server.Addr(), "session_timeout="+quiet.String()), "zk://", "zk://"+alice+"@", 1)
			holder, waiter := w.open(dsn, "web1"), w.open(dsn, "web2")
			first := w.lock(waiter).granted() // so that both clients know the queue
			behind := w.lock(holder)
			behind.waitsBehind(first.Node())
			w.unlock(first)
			w.unlock(behind.granted())
			if name == "adds, asked" {
				_, err = operator.SetACL(w.path("q"), acl.later, -1)
				require.NoError(t, err)
			}

			watches := w.server.Watches()
			lock := w.lock(holder).granted()
			w.watched(watches, 1) // the holder's own watch
			forged, err := w.raw.Create(w.path("q")+"/x-W-", []byte("\n#dlock guarded"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			if name == "could add" {
				_, err = operator.SetACL(w.path("q"), acl.later, -1)
				require.NoError(t, err)
			}
			k := w.lock(waiter)
			k.waitsBehind(forged[len(w.path("q"))+1:])
			w.watched(watches, 3)
			_, err = w.raw.Set(forged, []byte("x"), -1)
			require.NoError(t, err)
			k.listedQueue(2)
			require.NoError(t, lock.Err())
			require.NoError(t, operator.Delete(forged, -1))
			w.unlock(lock)
			w.unlock(k.granted())
			_, err = operator.SetACL(w.path("q"), zk.WorldACL(zk.PermAll), -1)
			require.NoError(t, err)
		})
	}
}

// An attacker replaces the holder's node with another one of the same name. The
// holder must still notice its loss.
func TestAForgedNodeDoesNotHideALossFromTheHolder(t *testing.T) {
	for _, handover := range []string{"release", "list"} {
		for _, mode := range []dlock.Mode{dlock.Exclusive, dlock.Shared} {
			for _, when := range []string{"at once", "later"} {
				t.Run(fmt.Sprintf("handover=%s, %v, %s", handover, mode, when), func(t *testing.T) {
					w := newFixture(t)
					c := w.open(w.dsn(w.server.Addr(), "session_timeout="+quiet.String()+"&handover="+handover), "web1")
					watches := w.server.Watches()
					lock := w.contend(c, "q", mode).granted()
					if when == "later" {
						w.watched(watches, 1) // the holder's own watch
					}
					path := w.path("q") + "/" + lock.Node()
					_, err := w.raw.Multi(
						&zk.DeleteRequest{Path: path, Version: -1},
						&zk.CreateRequest{Path: path, Data: fmt.Appendf(nil, "\n#dlock token=%d created=1", lock.Token()), Acl: zk.WorldACL(zk.PermAll)})
					require.NoError(t, err)
					w.lost(lock)
					require.ErrorIs(t, lock.Unlock(), dlock.ErrLost)
					w.listed("q", lock.Node())
				})
			}
		}
	}
}

func TestUnlockLeavesAForgedNodeAndReportsTheLoss(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1")
	w.unlock(w.lock(c).granted())
	lock := w.lock(c).granted()
	path := w.path("q") + "/" + lock.Node()
	_, err := w.raw.Multi(
		&zk.DeleteRequest{Path: path, Version: -1},
		&zk.CreateRequest{Path: path, Data: fmt.Appendf(nil, "\n#dlock token=%d created=1", lock.Token()), Acl: zk.WorldACL(zk.PermRead)})
	require.NoError(t, err)
	err = lock.Unlock()
	require.ErrorIs(t, err, dlock.ErrLost)
	require.NotErrorIs(t, err, dlock.ErrUnavailable)
	require.Contains(t, w.nodes("q"), lock.Node())
}
