package handmade

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A pause says what came of pausedHolder.
type pause struct {
	told      bool // A's first check after the pause said that the lock is lost
	lateWrite bool // the resource took the write of A after that of B
	thirdOne  bool // A's unlock let C in, although B held the lock
}

// pausedHolder plays a pause with any lock whose server lets the lock of a silent
// process go. A has checked its lock and is about to write when its process is
// stopped. B gets the lock and writes. A goes on where it was stopped: it writes, and
// unlocks. Then C asks for the lock.
//
// The lock of A has the setting with a short expiry, those of B and C that with a
// long one.
func pausedHolder(t testing.TB, short, long setting) (p pause) {
	t.Helper()
	a, b, c := start(t, "A", short), start(t, "B", long), start(t, "C", long)
	var r resource
	a.lock()
	require.NoError(t, a.check())
	a.pause()
	b.lock()
	require.NoError(t, b.write(&r))
	a.order("write")
	a.resume()
	p.lateWrite = a.deliver(&r) == nil
	p.told = a.check() != nil
	_ = a.unlock() // some locks tell here that the lock was not held any more
	p.thirdOne = c.do("lock") != "waiting"
	require.NoError(t, b.check(), "B holds the lock in any case")
	if !p.thirdOne {
		require.NoError(t, b.unlock())
		c.granted()
	}
	return p
}

// requireDeadHolderBlocks plays the death of a holder with a lock that the store keeps
// for ever. The order to A makes it take the lock, or die on the way.
func requireDeadHolderBlocks(t testing.TB, s setting, take func(a *process)) {
	t.Helper()
	a, b := start(t, "A", s), start(t, "B", s)
	take(a)
	a.kill()
	b.stopAt("retry")
	b.contend()
	for range 10 { // and so on
		b.at("retry")
		b.goOn()
	}
	b.at("retry")
}

// requireDeadHolderIsReplaced plays the death of a holder with dlock.
func requireDeadHolderIsReplaced(t testing.TB, s setting) {
	t.Helper()
	a, b := start(t, "A", s), start(t, "B", s)
	first := a.lock()
	a.kill()
	require.Greater(t, b.lock(), first)
}

// requireOvertaken plays the arrival of three contenders with a lock that has no
// queue: B pauses between two tries, as each waiter does, while A unlocks and C comes.
func requireOvertaken(t testing.TB, s setting) {
	t.Helper()
	a, b, c := start(t, "A", s), start(t, "B", s), start(t, "C", s)
	a.lock()
	b.stopAt("retry")
	b.contend()
	b.at("retry")
	require.NoError(t, a.unlock())
	c.lock()
	b.goOn()
	b.at("retry")
}

// requireOrder plays the same with dlock: B holds the lock before C, which came later.
func requireOrder(t testing.TB, s setting) {
	t.Helper()
	a, b, c := start(t, "A", s), start(t, "B", s), start(t, "C", s)
	first := a.lock()
	b.contend()
	c.contend()
	require.NoError(t, a.unlock())
	second := b.granted()
	require.Greater(t, second, first)
	require.NoError(t, b.check())
	require.NoError(t, b.unlock())
	require.Greater(t, c.granted(), second)
}

// requireSurvivesRestart plays a crash of the server with dlock: A holds the lock on
// both sides of the crash, and B goes on waiting.
func requireSurvivesRestart(t testing.TB, s setting, crash func()) {
	t.Helper()
	a, b := start(t, "A", s), start(t, "B", s)
	first := a.lock()
	b.contend()
	crash()
	awaitQueue(t, s, first, 0)
	require.NoError(t, a.check())
	require.Eventually(t, func() bool { return a.unlock() == nil }, bound, 10*time.Millisecond) // connections of before the crash may fail first
	require.Greater(t, b.granted(), first)
}

// requireLongWork plays work that takes longer than the session timeout with dlock: A
// keeps the lock until it unlocks, and B waits. If the machine is so slow that A loses
// the lock, it plays the same with a longer session timeout.
func requireLongWork(t testing.TB, s setting) {
	t.Helper()
	for timeout := sessionTimeout; !longWork(t, s.lasting(timeout), timeout); timeout *= 2 {
		require.Less(t, timeout, 3*sessionTimeout, "A loses the lock")
	}
}

func longWork(t testing.TB, s setting, timeout time.Duration) (kept bool) {
	t.Helper()
	a, b := start(t, "A", s), start(t, "B", s)
	defer a.kill()
	defer b.kill()
	first := a.lock()
	b.contend()
	for end := time.Now().Add(timeout * 3 / 2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if a.check() != nil {
			return false
		}
	}
	awaitQueue(t, s, first, 0)
	require.NoError(t, a.unlock())
	require.Greater(t, b.granted(), first)
	return true
}
