package cas

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// lossy is a store that reports the generation set by the test.
type lossy struct {
	*memory
	now atomic.Value // a session.Begun
}

func newLossy(now session.Begun) *lossy {
	l := &lossy{memory: newMemory()}
	l.now.Store(now)
	return l
}

func (l *lossy) Generation(context.Context) (Generation, error) {
	return Generation{l.now.Load().(session.Begun), 1000}, nil
}

// frozen is a lossy store that takes no write of an earlier generation.
type frozen struct{ *lossy }

func (f frozen) Write(ctx context.Context, e Entry, guard ...Entry) (int64, error) {
	if f.now.Load().(session.Begun).Generation != "1" {
		return 0, session.ErrLost
	}
	return f.lossy.Write(ctx, e, guard...)
}

func TestASessionEndsWithTheGenerationOfItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := frozen{newLossy(session.Begun{Generation: "1"})}
		a := connect(t, kv)
		require.Equal(t, "1", a.Describe().Generation)
		require.Greater(t, create(t, a, "q").Token, int64(1000))
		kv.now.Store(session.Begun{Generation: "2"})
		time.Sleep(testTimeout / 2)
		require.ErrorIs(t, a.Err(), driver.ErrLostData)
		require.NoError(t, a.Close(), "so that nobody repeats it")
	})
}

func TestASessionWhoseKeyIsGoneSaysThatDataWereLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := newLossy(session.Begun{Generation: "1"})
		a := connect(t, kv)
		kv.now.Store(session.Begun{Generation: "2"})
		kv.mu.Lock()
		clear(kv.entries)
		kv.mu.Unlock()
		_, err := a.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
		require.ErrorIs(t, err, driver.ErrLostData)
	})
}

func TestNoSessionBeginsDuringAGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := newLossy(session.Begun{Wait: time.Second, Rest: time.Hour})
		time.AfterFunc(time.Minute, func() { kv.now.Store(session.Begun{}) })
		began := time.Now()
		connect(t, kv)
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.Less(t, time.Since(began), time.Minute+2*time.Second)
	})
}

// The answer may come from a deposed leader, or from a restored backup.
func TestAnOlderStateThanBeforeIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a := connect(t, m)
		first := create(t, a, "q")
		old := m.entries["q/q"]
		second := create(t, a, "q")
		m.stale = func(key string) *Entry {
			if key == old.Key {
				return &old
			}
			return nil
		}
		_, err := a.List(t.Context(), "q")
		m.stale = nil
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.Equal(t, []string{first.Name, second.Name}, list(t, a, "q"))
	})
}

// bare is a memory whose writes have no guard.
type bare struct{ *memory }

// refusing is a bare memory that refuses one read of a session's key.
type refusing struct {
	bare
	next atomic.Bool
}

func (r *refusing) Get(ctx context.Context, key string) (Entry, error) {
	if key[0] == 's' && r.next.CompareAndSwap(true, false) {
		return Entry{}, session.Refused(driver.ErrUnavailable)
	}
	return r.bare.Get(ctx, key)
}

func TestANodeIsRemovedIfTheSessionCannotBeConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &refusing{bare: bare{newMemory()}}
		a := connect(t, kv)
		kv.next.Store(true)
		_, err := a.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
		require.ErrorIs(t, err, driver.ErrUnavailable)
		time.Sleep(time.Second)
		require.Empty(t, list(t, a, "q"))
	})
}

func (bare) Unguarded() bool { return true }

func (b bare) Write(ctx context.Context, e Entry, guard ...Entry) (int64, error) {
	if len(guard) > 0 {
		panic("a guard")
	}
	return b.memory.Write(ctx, e)
}

// lying reports a conflict for a write that it stored, as when leaders change.
type lying struct {
	bare
	next atomic.Bool
}

func (l *lying) Write(ctx context.Context, e Entry, guard ...Entry) (int64, error) {
	revision, err := l.bare.Write(ctx, e, guard...)
	if e.Key[0] == 'q' && l.next.CompareAndSwap(true, false) {
		return 0, errors.Join(ErrConflict, driver.ErrUnavailable)
	}
	return revision, err
}

func TestAChangeThatWasStoredDespiteAConflictIsNotMadeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &lying{bare: bare{newMemory()}}
		s := connect(t, kv)
		kv.next.Store(true)
		j := create(t, s, "q")
		require.Equal(t, []string{j.Name}, list(t, s, "q"))
		kv.next.Store(true)
		require.NoError(t, s.Delete(t.Context(), "q", j.Place, driver.Released))
		require.Empty(t, list(t, s, "q"))
		kv.next.Store(true)
		kv.stale = func(key string) *Entry { // the next read fails
			kv.stale = nil
			return &Entry{Key: key, Value: []byte("{}"), Revision: 1}
		}
		_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
		require.ErrorIs(t, err, driver.ErrUnavailable)
		time.Sleep(time.Second)
		require.Empty(t, list(t, s, "q"))
	})
}

// A deposed leader, which does not know newer sessions, may answer a read.
func TestWithoutGuardsAMissingSessionHasToBeProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		deposed := &memory{shared: m.shared}
		a, b := connect(t, bare{m}), connect(t, bare{deposed})
		held := create(t, a, "q")
		key := sessionKey(a.Describe().ID)
		deposed.stale = func(asked string) *Entry {
			if asked != key {
				return nil
			}
			return &Entry{Key: key}
		}
		waits := create(t, b, "q")
		time.Sleep(3 * testTimeout)
		require.Equal(t, []string{held.Name, waits.Name}, list(t, b, "q"))
	})
}

func TestWithoutGuardsAnEndedSessionLeavesNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := connect(t, bare{m}), connect(t, bare{m})
		create(t, a, "q")
		m.purge(t, "s/"+a.Describe().ID)
		_, err := a.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		require.Empty(t, list(t, b, "q"))
	})
}

func TestWithoutGuardsALateCreateLeavesNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a := connect(t, bare{m})
		arrive := m.lost(true)
		_, err := a.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
		require.ErrorIs(t, err, driver.ErrUnavailable)
		time.Sleep(time.Second)
		require.ErrorIs(t, arrive(), ErrConflict)
		require.Empty(t, list(t, a, "q"))
	})
}
