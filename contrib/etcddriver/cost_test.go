package etcddriver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
)

// These sessions send no heartbeat during a test, so every request counts.
const longSession = "session_timeout=1h"

// contender is the lock "q" of a client of its own, with the session of the client
// and the wire that counts the requests of this session.
type contender struct {
	*dlock.RWMutex
	session *session
	wire    *wire
}

func (s *store) contender(t *testing.T) contender {
	c := s.client(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	return contender{c.RWMutex("q"), s.last, &s.links[s.last].wire}
}

func TestAFreeLockTakesTwoRequests(t *testing.T) {
	m := newStore(t, etcdtest.Shared(t), longSession).contender(t)
	w := m.wire
	for range 3 {
		before := w.total()
		l, err := m.Lock(within(t))
		require.NoError(t, err)
		require.Equal(t, 1, w.total()-before)
		require.NoError(t, l.Unlock())
		require.Equal(t, 2, w.total()-before)
	}
}

// wait starts a call of lock and returns when the waiter has armed its watch. The
// lock arrives on the returned channel once it is granted.
func (c contender) wait(t *testing.T, lock func(context.Context) (*dlock.Lock, error)) <-chan *dlock.Lock {
	granted := make(chan *dlock.Lock, 1)
	go func() {
		l, err := lock(within(t))
		if err == nil {
			granted <- l
		}
		close(granted)
	}()
	eventually(t, func() bool { return c.session.watches.Len() == 1 })
	return granted
}

func receive(t *testing.T, granted <-chan *dlock.Lock) *dlock.Lock {
	t.Helper()
	select {
	case l := <-granted:
		require.NotNil(t, l)
		return l
	case <-within(t).Done():
		t.Fatal("the lock was not granted")
		return nil
	}
}

// A contender takes two transactions: one creates its node, the other releases
// the lock. When a session waits in a queue for the first time, it lists the
// queue once as well. Later waits in the same queue take the two transactions
// only.
func TestAHandOverTakesNoRequestOfTheNextHolder(t *testing.T) {
	s := newStore(t, etcdtest.Shared(t), longSession)
	a := s.contender(t)
	b := s.contender(t)
	for round, want := range []int{3, 2, 2} {
		beforeA, beforeB := a.wire.total(), b.wire.total()
		held, err := a.Lock(within(t))
		require.NoError(t, err)
		granted := b.wait(t, b.Lock)
		require.NoError(t, held.Unlock())
		require.NoError(t, receive(t, granted).Unlock())
		require.Equal(t, 2, a.wire.total()-beforeA, "the holder, round %d", round)
		require.Equal(t, want, b.wire.total()-beforeB, "the waiter, round %d", round)
	}
}

// When a reader releases its lock, the watch does not report driver.Released,
// because another reader may still hold the lock. So the waiting writer lists the
// queue to see whether it holds the lock now.
func TestAWriterBehindAReaderListsTheQueueOnce(t *testing.T) {
	s := newStore(t, etcdtest.Shared(t), longSession)
	a := s.contender(t)
	b := s.contender(t)
	for round, want := range []int{4, 3, 3} {
		before := b.wire.total()
		held, err := a.RLock(within(t))
		require.NoError(t, err)
		granted := b.wait(t, b.Lock)
		require.NoError(t, held.Unlock())
		require.NoError(t, receive(t, granted).Unlock())
		require.Equal(t, want, b.wire.total()-before, "round %d", round)
	}
}

func TestAllWatchesOfASessionShareAStream(t *testing.T) {
	s := newStore(t, etcdtest.Shared(t), longSession)
	made, err := s.Connect(within(t))
	require.NoError(t, err)
	defer made.Close()
	before := s.server.Metric("etcd_debugging_mvcc_watch_stream_total", "")
	for _, queue := range []string{"a", "b", "c"} {
		first := create(t, made, queue, "h-W-")
		second := create(t, made, queue, "h-W-")
		w, err := made.Watch(within(t), queue, second.Place, first.Node)
		require.NoError(t, err)
		defer w.Stop()
	}
	require.Equal(t, before+1, s.server.Metric("etcd_debugging_mvcc_watch_stream_total", ""))
}
