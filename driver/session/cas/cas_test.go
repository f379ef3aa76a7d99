package cas

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

const testTimeout = 10 * time.Second

func connect(t *testing.T, kv KV) *session.Session {
	t.Helper()
	s, err := Connect(t.Context(), kv, session.Config{Name: "memory", Timeout: testTimeout, Server: func() string { return "memory" }})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func create(t *testing.T, s *session.Session, queue string) driver.Joined {
	t.Helper()
	j, err := s.Create(t.Context(), queue, driver.NodeSpec{Prefix: "a-W-", Predecessor: func(a []driver.Node) int { return len(a) - 1 }})
	require.NoError(t, err)
	return j
}

func list(t *testing.T, s *session.Session, queue string) (names []string) {
	t.Helper()
	nodes, err := s.List(t.Context(), queue)
	require.NoError(t, err)
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

// purge removes a key as an operator would.
func (m *memory) purge(t *testing.T, key string) {
	e, _ := m.Get(t.Context(), key)
	_, err := m.write(Entry{Key: key, Revision: e.Revision})
	require.NoError(t, err)
}

func TestAQueueOfAnotherLayoutIsRefused(t *testing.T) {
	kv := newMemory()
	s := connect(t, kv)
	create(t, s, "q")
	e, _ := kv.Get(t.Context(), queueKey("q"))
	e.Value = []byte(strings.Replace(string(e.Value), `"Layout":1`, `"Layout":2`, 1))
	_, err := kv.Write(t.Context(), e)
	require.NoError(t, err)
	_, err = s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "b-W-"})
	require.ErrorContains(t, err, "key q/q: the data have layout 2, and this version of dlock needs layout 1")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

func next(w driver.Watch) (cause driver.Cause, ok bool) {
	select {
	case cause = <-w.C:
		return cause, true
	case <-time.After(5 * time.Minute):
		return cause, false
	}
}

// requests returns the numbers of gets, scans and writes since the last call.
func (m *memory) requests() (n [3]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = [3]int{m.gets, m.scans, m.writes}
	m.gets, m.scans, m.writes, m.conflicts = 0, 0, 0, 0
	return n
}

func TestAnUncontendedLockCostsTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := connect(t, m)
		for first := true; ; first = false {
			j := create(t, s, "q")
			require.NoError(t, s.Delete(t.Context(), "q", j.Place, driver.Released))
			if n := m.requests(); !first {
				assert.Equal(t, [3]int{0, 0, 2}, n, "gets, scans, writes")
				return
			}
		}
	})
}

// After a notice, a write on condition of the old revision would fail.
func TestAHandOverCostsALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := connect(t, noticing{m}), connect(t, noticing{m})
		held := create(t, a, "q")
		for range 4 { // a session listens only once it has waited
			waits := create(t, b, "q")
			time.Sleep(time.Second)
			m.requests()
			held.Watch.Stop()
			require.NoError(t, a.Delete(t.Context(), "q", held.Place, driver.Released))
			cause, _ := next(waits.Watch)
			require.Equal(t, driver.Released, cause)
			synctest.Wait()
			held, a, b = waits, b, a
		}
		assert.Equal(t, [3]int{2, 0, 1}, m.requests(), "gets, scans, writes")
	})
}

func TestManyWaitersLookAtLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var sessions []*session.Session
		var nodes []driver.Joined
		for i := range 20 {
			sessions = append(sessions, connect(t, noticing{m}))
			nodes = append(nodes, create(t, sessions[i], "q"))
		}
		for i := range 2 { // a session listens only once it has waited
			time.Sleep(100 * time.Millisecond)
			m.requests()
			require.NoError(t, sessions[i].Delete(t.Context(), "q", nodes[i].Place, driver.Released))
			cause, _ := next(nodes[i+1].Watch)
			require.Equal(t, driver.Released, cause)
			synctest.Wait()
		}
		assert.Equal(t, [3]int{1, 0, 1}, m.requests(), "gets, scans, writes")
		time.Sleep(testTimeout / 2)
		assert.Less(t, m.requests()[0], 4*20*(nearest+1), "four searches each, and looks")
	})
}

func TestADeleteDoesNotOutlastItsCtxBehindAnotherChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := connect(t, m)
		m.lose = func(Entry, []Entry) bool { time.Sleep(5 * time.Second); return true }
		go s.Create(context.Background(), "q", driver.NodeSpec{Prefix: "a-W-"})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		assert.ErrorIs(t, s.Delete(ctx, "q", driver.Place{Token: 7}, driver.Released), driver.ErrUnavailable)
		assert.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestAHandOverInASessionCostsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		for _, kv := range []KV{m, noticing{m}} {
			s := connect(t, kv)
			held, waits := create(t, s, "q"), create(t, s, "q")
			time.Sleep(time.Second)
			m.requests()
			require.NoError(t, s.Delete(t.Context(), "q", held.Place, driver.Released))
			cause, _ := next(waits.Watch)
			require.Equal(t, driver.Released, cause)
			assert.Equal(t, [3]int{0, 0, 1}, m.requests(), "gets, scans, writes")
			require.NoError(t, s.Delete(t.Context(), "q", waits.Place, driver.Released))
		}
	})
}

// lost loses the next write's answer or, if late, delays the write until
// arrive.
func (m *memory) lost(late bool) (arrive func() error) {
	var write func() error
	m.lose = func(e Entry, guard []Entry) bool {
		m.lose = nil
		write = func() error { _, err := m.write(e, guard...); return err }
		return late || write() == nil
	}
	return func() error { return write() }
}

// A Create that arrives after its clean-up must fail, even on the same nodes.
func TestACreateWithoutAnAnswerLeavesNoNode(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			s := connect(t, m)
			arrive := m.lost(late)
			_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
			require.ErrorIs(t, err, driver.ErrUnavailable)
			time.Sleep(time.Second)
			m.purge(t, "q/q")
			assert.ErrorIs(t, arrive(), ErrConflict)
			assert.Empty(t, list(t, s, "q"))
		})
	}
}

func TestCloseRemovesTheNodes(t *testing.T) {
	for _, late := range []bool{false, true} {
		m := newMemory()
		s := newStore(m, "me", testTimeout)
		require.NoError(t, s.sign(t.Context(), false))
		arrive := func() error { return nil }
		if late {
			arrive = m.lost(true)
		}
		_, err := s.Do(t.Context(), session.Change{Queue: "q", Prefix: "a-W-"})
		require.Equal(t, late, err != nil)
		_, err = s.get(t.Context(), "q/q", true)
		require.NoError(t, err)
		require.NoError(t, arrive())
		require.NotEmpty(t, m.nodes(t))
		require.NoError(t, s.End(t.Context()))
		assert.Empty(t, m.nodes(t))
		assert.NotContains(t, m.entries, sessionKey(s.id))
	}
}

func TestCloseAfterTheLocksWereReleasedCostsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := connect(t, m)
		for _, queue := range []string{"a", "b"} {
			require.NoError(t, s.Delete(t.Context(), queue, create(t, s, queue).Place, driver.Released))
		}
		m.requests()
		require.NoError(t, s.Close())
		assert.Equal(t, [3]int{0, 0, 1}, m.requests(), "gets, scans, writes")
	})
}

func (m *memory) nodes(t *testing.T) []session.Row {
	q, err := decode(m.entries["q/q"])
	require.NoError(t, err)
	return q.Nodes
}

// A read that is answered late may put an old queue into the cache.
func TestAnOldQueueCostsOnlyRequests(t *testing.T) {
	m := newMemory()
	s, other := newStore(m, "me", testTimeout), newStore(m, "other", testTimeout)
	require.NoError(t, s.sign(t.Context(), false))
	require.NoError(t, other.sign(t.Context(), false))
	m.stale = func(key string) *Entry {
		m.stale = nil
		_, err := s.Do(t.Context(), session.Change{Queue: "q", Prefix: "a-W-"})
		require.NoError(t, err)
		return &Entry{Key: key}
	}
	_, err := s.get(t.Context(), "q/q", true)
	require.NoError(t, err)
	r, err := other.Do(t.Context(), session.Change{Queue: "q", Prefix: "a-W-"})
	require.NoError(t, err)
	_, err = s.Do(t.Context(), session.Change{Kind: session.Remove, Queue: "q", Place: r.Place})
	require.NoError(t, err)
	assert.Len(t, m.nodes(t), 1)
}

// Without its key, a session's nodes stay in the store, but must not block.
func TestASessionPurgedBeforeItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := connect(t, m), connect(t, m)
		create(t, a, "q")
		m.purge(t, sessionKey(a.Describe().ID))
		began := time.Now()
		_, err := a.Create(t.Context(), "r", driver.NodeSpec{Prefix: "a-W-"})
		assert.ErrorIs(t, err, driver.ErrSessionEnded)
		assert.Less(t, time.Since(began), time.Second, "not by the next heartbeat")
		assert.ErrorIs(t, a.Err(), driver.ErrSessionEnded)
		assert.Empty(t, list(t, b, "r"))
		_ = list(t, b, "q")
		time.Sleep(testTimeout / 4)
		for range 10 {
			assert.Empty(t, list(t, b, "q"))
			time.Sleep(testTimeout)
		}
	})
}

// The waiter saw the session alive, and must notice the purge at a heartbeat.
func TestAWaiterPrunesASessionThatItKnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := connect(t, m), connect(t, m)
		create(t, a, "q")
		j := create(t, b, "q")
		require.Len(t, j.Ahead, 1)
		m.purge(t, sessionKey(a.Describe().ID))
		began := time.Now()
		_, ended := next(j.Watch)
		require.True(t, ended)
		assert.LessOrEqual(t, time.Since(began), testTimeout/4)
		assert.Equal(t, []string{j.Name}, list(t, b, "q"))
	})
}

func TestASessionEndsAfterItsTimeoutAndNoEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var dead *store
		for i := range 20 {
			dead = newStore(m, fmt.Sprint("dead-", i), time.Minute)
			require.NoError(t, dead.sign(t.Context(), false))
			_, err := dead.Do(t.Context(), session.Change{Queue: "q", Prefix: "a-W-"})
			require.NoError(t, err)
		}
		b := connect(t, m)
		began := time.Now()
		j := create(t, b, "q")
		time.Sleep(59 * time.Second)
		require.NoError(t, dead.sign(t.Context(), false))
		_, ended := next(j.Watch)
		require.True(t, ended)
		assert.GreaterOrEqual(t, time.Since(began), 119*time.Second)
		assert.LessOrEqual(t, time.Since(began), 119*time.Second+testTimeout/4)
		assert.Equal(t, []string{j.Name}, list(t, b, "q"))
	})
}

// Outdated reads by another session must not remove a living session's nodes.
func TestTheConditionOfAWriteDecidesWhetherASessionHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := newStore(m, "a", testTimeout), newStore(m, "b", time.Hour)
		require.NoError(t, a.sign(t.Context(), false))
		require.NoError(t, b.sign(t.Context(), false))
		_, err := a.Do(t.Context(), session.Change{Queue: "q", Prefix: "a-W-"})
		require.NoError(t, err)
		_, err = b.get(t.Context(), "q/q", true)
		require.NoError(t, err)
		_, err = b.Expire(t.Context())
		require.NoError(t, err)
		time.Sleep(testTimeout)
		for _, old := range []Entry{m.entries["s/a"], {Key: "s/a"}} {
			m.stale = func(key string) *Entry {
				if key != old.Key {
					return nil
				}
				m.stale = nil
				require.NoError(t, a.sign(t.Context(), false))
				return &old
			}
			_, err = b.Expire(t.Context())
			assert.NoError(t, err)
			assert.Nil(t, m.stale)
			assert.Len(t, m.nodes(t), 1)
		}
	})
}

func TestTokensRiseAfterARemovalOrARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := connect(t, m)
		first := create(t, s, "q")
		m.purge(t, "q/q")
		second := create(t, s, "q")
		assert.Greater(t, second.Token, first.Token)
		m.mu.Lock()
		restored := m.entries["q/q"]
		restored.Value = encode(queue{Last: 1e6})
		m.entries["q/q"] = restored
		m.mu.Unlock()
		third := create(t, connect(t, m), "q")
		assert.EqualValues(t, 1e6+1, third.Token)
		assert.Equal(t, []string{third.Name}, list(t, s, "q"))
	})
}

// Contenders compete for one key. Each change is made once, and none is lost.
func TestConflictsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.delay = time.Millisecond
		var all sync.WaitGroup
		var last *session.Session
		for range 20 {
			s := connect(t, m)
			all.Go(func() { create(t, s, "q") })
			last = s
		}
		all.Wait()
		assert.Len(t, list(t, last, "q"), 20)
		assert.Positive(t, m.conflicts)
	})
}

func TestTidyRemovesWhatStaysUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := connect(t, m)
		require.NoError(t, newStore(m, "dead", time.Minute).sign(t.Context(), false))
		require.NoError(t, newStore(m, "slow", 5*time.Hour).sign(t.Context(), false))
		for _, queue := range []string{"held", "empty", "used", "value"} {
			j := create(t, s, queue)
			if queue == "value" {
				require.NoError(t, s.SetValue(t.Context(), queue, j.Place, []byte("text")))
			}
			if queue != "held" {
				require.NoError(t, s.Delete(t.Context(), queue, j.Place, driver.Changed))
			}
		}
		time.Sleep(time.Hour + time.Minute)
		require.NoError(t, s.Delete(t.Context(), "used", create(t, s, "used").Place, driver.Changed))
		time.Sleep(time.Hour)
		m.mu.Lock()
		defer m.mu.Unlock()
		for key, stays := range map[string]bool{"q/held": true, "q/used": true, "q/value": true, "s/slow": true, "q/empty": false, "s/dead": false} {
			assert.Equal(t, stays, m.entries[key].Value != nil, key)
		}
	})
}

func TestKeysOfQueues(t *testing.T) {
	for _, queue := range []string{"stock/42", "Größe = 1%", "a.b~c_d-e+f", "order-1234567890"} {
		key := queueKey(queue)
		assert.Regexp(t, `^q/[A-Za-z0-9/_=-]+$`, key)
		got, ok := queueOf(key)
		assert.True(t, ok)
		assert.Equal(t, queue, got)
	}
}
