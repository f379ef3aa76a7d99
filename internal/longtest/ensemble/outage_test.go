package ensemble

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

func TestAllServersDownForLongerThanTheSessionTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	e := ensemble(t, 10)
	at := dsn("/o?session_timeout="+timeout.String(), e.Addrs()...)
	h := contend(t, "a/q", at, at)
	others := []<-chan grant{h.queue(t, "a/q", at), h.queue(t, "a/q", at)}

	began := time.Now()
	for _, s := range e.Servers {
		s.Kill()
	}
	select {
	case <-h.lock.Lost():
	case <-time.After(bound):
		t.Fatal("the holder has not learned of the loss")
	}
	require.ErrorIs(t, h.lock.Err(), dlock.ErrLost)
	t.Logf("the holder learned of the loss %v after the servers were killed", time.Since(began).Round(time.Millisecond))
	time.Sleep(time.Until(began.Add(3 * timeout / 2))) // the waiters' sessions have expired too by then
	require.Empty(t, h.next)
	began = time.Now()
	for _, s := range e.Servers {
		s.Restart()
	}
	for _, next := range append(others, h.next) {
		g := <-next
		require.NoError(t, g.err)
		require.ErrorIs(t, g.holderErr, dlock.ErrLost)
		t.Logf("a waiter was granted the lock %v after the restart began", g.at.Sub(began).Round(time.Millisecond))
	}
	require.ErrorIs(t, h.lock.Unlock(), dlock.ErrLost)
	l, err := h.holder.RWMutex("a/q").Lock(within(t)) // in a new session
	require.NoError(t, err)
	require.NoError(t, l.Unlock())

	e.WaitQuorum(t)
	var left []string
	eventually(t, "only queues are left", func() bool {
		left = e.Servers[0].Tree(t, "/o")
		return len(left) <= 2
	})
	require.Equal(t, []string{"/o/a", "/o/a/q"}, left)
}
