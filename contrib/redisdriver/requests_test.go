package redisdriver

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/internal/redistest"
)

// longTimeout keeps a session from looking at its watches during a test.
const longTimeout = "session_timeout=10m"

// requests returns the requests of all sessions, without those that begin, keep and
// end a session.
func (s *store) requests() map[faults.Op]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := make(map[faults.Op]int)
	for _, p := range s.proxies {
		for op, n := range p.Counts() {
			sum[faults.Op(op)] += n
		}
	}
	maps.DeleteFunc(sum, func(op faults.Op, _ int) bool {
		return op == otherCommand || op == faults.OpConnect || op == faults.OpHeartbeat || op == faults.OpClose
	})
	return sum
}

// newClient returns a client of the store that is closed when the test ends.
func (s *store) newClient() *dlock.Client {
	c := dlock.NewClient(s)
	s.t.Cleanup(func() { c.Close() })
	return c
}

// waitForContenders waits until the queue has n nodes.
func (s *store) waitForContenders(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.server.Do("ZCARD", s.key("q:stock/42")) == int64(n)
	}, 30*time.Second, time.Millisecond, "the queue never had %d contenders", n)
}

func TestAFreeLockTakesTwoRequests(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	mutex := s.newClient().RWMutex("stock/42")
	for range 20 {
		lock, err := mutex.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lock.Unlock())
		reader, err := mutex.RLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, reader.Unlock())
	}
	require.Equal(t, map[faults.Op]int{faults.OpCreate: 40, faults.OpDelete: 40}, s.requests())
}

// inLine lets clients take the lock one after the other, behind a writer that holds
// it, and then lets the writer go. It returns when each client has held the lock.
func inLine(t *testing.T, s *store, watchHolder int, lock func(context.Context, *dlock.RWMutex) (*dlock.Lock, error)) {
	t.Helper()
	holder, err := s.newClient().RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	var done sync.WaitGroup
	for i := range 6 {
		mutex := s.newClient().RWMutex("stock/42")
		done.Go(func() {
			held, err := lock(t.Context(), mutex)
			if err == nil {
				err = held.Unlock()
			}
			if err != nil {
				t.Error(err)
			}
		})
		s.waitForContenders(i + 2)
	}
	s.waitForWatchers(holder, watchHolder)
	require.NoError(t, holder.Unlock())
	done.Wait()
}

// waitForWatchers waits until the store knows n contenders that wait for this one.
func (s *store) waitForWatchers(holder *dlock.Lock, n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		lines, _ := s.server.Do("HGET", s.key("w:stock/42"), holder.Node()).(string)
		return strings.Count(lines, "\n") == n
	}, 30*time.Second, time.Millisecond, "the holder never had %d waiters", n)
}

func TestAWaitingWriterTakesTwoRequests(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	inLine(t, s, 1, func(ctx context.Context, m *dlock.RWMutex) (*dlock.Lock, error) { return m.Lock(ctx) })
	require.Equal(t, map[faults.Op]int{faults.OpCreate: 7, faults.OpDelete: 7}, s.requests())
}

func TestAReaderThatWaitsBehindAReaderTakesThreeRequests(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	inLine(t, s, 6, func(ctx context.Context, m *dlock.RWMutex) (*dlock.Lock, error) { return m.RLock(ctx) })
	require.Equal(t, map[faults.Op]int{faults.OpCreate: 7, faults.OpWatch: 5, faults.OpDelete: 7}, s.requests())
}

func TestAReaderAmongReadersTakesTwoRequests(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	for range 4 {
		lock, err := s.newClient().RWMutex("stock/42").RLock(t.Context())
		require.NoError(t, err)
		defer lock.Unlock()
	}
	require.Equal(t, map[faults.Op]int{faults.OpCreate: 4}, s.requests())
}

func TestAHandOverTakesTheReleaseOnly(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	holder, err := s.newClient().RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	granted := make(chan *dlock.Lock)
	mutex := s.newClient().RWMutex("stock/42")
	go func() {
		next, err := mutex.Lock(t.Context())
		if err != nil {
			t.Error(err)
		}
		granted <- next
	}()
	s.waitForWatchers(holder, 1)
	before := s.requests()
	require.NoError(t, holder.Unlock())
	next := <-granted
	after := s.requests()
	before[faults.OpDelete]++
	require.Equal(t, before, after)
	require.NoError(t, next.Unlock())
}

// TestContendersThatRaceTakeAboutTwoRequests lets eight sessions race for one lock. A
// few creates meet a release, so the number is not exact.
func TestContendersThatRaceTakeAboutTwoRequests(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	const sessions, locks = 8, 25
	var done sync.WaitGroup
	for range sessions {
		mutex := s.newClient().RWMutex("stock/42")
		done.Go(func() {
			for range locks {
				lock, err := mutex.Lock(t.Context())
				if err == nil {
					err = lock.Unlock()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	sum := 0
	for _, n := range s.requests() {
		sum += n
	}
	t.Logf("%.2f requests for each lock: %v", float64(sum)/(sessions*locks), s.requests())
	require.LessOrEqual(t, float64(sum), 2.3*sessions*locks)
}
