package endtoend_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// Soon after a grant an operator removes the queue and makes it again, while
// another goroutine of the same client is about to win a node of the same name.
// The holder's Unlock is on its way then.
func TestAnUnlockTakesNoLockFromAnotherGoroutineOfItsClient(t *testing.T) {
	w := newWorld(t)
	c, proxy := w.proxied("web1")
	remake := func() {
		w.removeQueue("q")
		w.made("q")
	}
	w.unlock(w.lock(c).granted()) // the client knows the queue
	remake()
	old := w.lock(c).granted()
	remake()
	replies := proxy.HoldReplies(zktest.Op(zktest.OpMulti))
	next := w.lock(c)
	w.closes(replies.Held(), "the second goroutine's node")
	w.listed("q", old.Node())
	unlocked := make(chan error, 1)
	go func() { unlocked <- old.Unlock() }()
	w.eventually(func() bool { return len(w.nodes("q")) == 0 || len(unlocked) == 1 }, // the latter on a slow machine: the holder knows by then
		func() string { return "the Unlock has not arrived" })
	replies.Release()
	lock := next.granted()
	require.ErrorIs(t, <-unlocked, dlock.ErrLost)
	w.listed("q", lock.Node())
	_, err := w.client("web2").RWMutex("q").TryLock(w.soon())
	require.ErrorIs(t, err, dlock.ErrLocked)
	w.unlock(lock)
}
