package handmade

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A pause is the result of pausedHolder.
type pause struct {
	told      bool // A's first check after the pause reported the loss
	lateWrite bool // the resource accepted A's write after B's
	thirdOne  bool // A's unlock let C in although B held the lock
}

// pausedHolder pauses a holder for longer than its lock lasts. A has checked
// its lock and is about to write when its process is stopped. B gets the lock
// and writes. A resumes with its write, and unlocks. Then C asks for the lock.
//
// A's lock has the setting short; those of B and C have the setting long.
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
	_ = a.unlock() // some locks report here that they were no longer held
	p.thirdOne = c.do("lock") != "waiting"
	require.NoError(t, b.check(), "B holds the lock in any case")
	if !p.thirdOne {
		require.NoError(t, b.unlock())
		c.granted()
	}
	return p
}

// requireDeadHolderBlocks requires that the store keeps a dead holder's lock
// forever. The function take makes A acquire the lock, or only begin to.
func requireDeadHolderBlocks(t testing.TB, s setting, take func(a *process)) {
	t.Helper()
	a, b := start(t, "A", s), start(t, "B", s)
	take(a)
	a.kill()
	b.stopAt("retry")
	b.contend()
	for range 10 { // no end in sight
		b.at("retry")
		b.goOn()
	}
	b.at("retry")
}

// requireDeadHolderIsReplaced requires that dlock grants a dead holder's lock
// to the next contender.
func requireDeadHolderIsReplaced(t testing.TB, s setting) {
	t.Helper()
	a, b := start(t, "A", s), start(t, "B", s)
	first := a.lock()
	a.kill()
	require.Greater(t, b.lock(), first)
}

// requireOvertaken requires that a later contender can overtake a waiter. While
// B sleeps between two tries, A unlocks and C gets the lock.
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

// requireOrder requires that dlock grants the lock to B before C, which came
// later.
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

// requireSurvivesRestart requires that a holder and a waiter of dlock survive a
// crash of the server.
func requireSurvivesRestart(t testing.TB, s setting, crash func()) {
	t.Helper()
	a, b := start(t, "A", s), start(t, "B", s)
	first := a.lock()
	b.contend()
	crash()
	awaitQueue(t, s, first, 0)
	require.NoError(t, a.check())
	require.Eventually(t, func() bool { return a.unlock() == nil }, bound, 10*time.Millisecond) // broken connections may fail first
	require.Greater(t, b.granted(), first)
}

// requireLongWork requires that dlock's holder keeps its lock even if its work
// outlasts the session timeout. If the machine is too slow for that, it starts
// over with a longer timeout.
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
