package endtoend_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// While Unlock is in flight, an operator recreates the queue. Another goroutine
// of the same client then gets a node of the same name. Unlock must report the
// loss and must not delete that node.
func TestAnUnlockTakesNoLockFromAnotherGoroutineOfItsClient(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	remake := func() {
		w.removeQueue("q")
		w.made("q")
	}
	w.unlock(w.lock(c).granted()) // so that the client knows the queue
	remake()
	old := w.lock(c).granted()
	remake()
	replies := proxy.HoldReplies(zktest.Op(zktest.OpMulti))
	next := w.lock(c)
	w.closes(replies.Held(), "the second goroutine's node")
	w.listed("q", old.Node())
	unlocked := make(chan error, 1)
	go func() { unlocked <- old.Unlock() }()
	// On a slow machine the holder may notice its loss first, so that
	// Unlock returns early.
	w.eventually(func() bool { return len(w.nodes("q")) == 0 || len(unlocked) == 1 },
		func() string { return "the queue still has a node, and Unlock has not returned" })
	replies.Release()
	lock := next.granted()
	require.ErrorIs(t, <-unlocked, dlock.ErrLost)
	w.listed("q", lock.Node())
	_, err := w.client("web2").RWMutex("q").TryLock(w.soon())
	require.ErrorIs(t, err, dlock.ErrLocked)
	w.unlock(lock)
}
