package recipes_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

const many = 10_000

func longHold(t *testing.T) *recipes.Lock {
	c := recipes.NewClient(memdriver.New())
	t.Cleanup(func() { _ = c.Close() })
	l, err := c.RWMutex("q").Lock(bg)
	require.NoError(t, err)
	return l
}

func objects() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapObjects
}

// requireFew allows some growth, because the runtime keeps goroutines for
// reuse.
func requireFew(t *testing.T, before uint64) {
	t.Helper()
	require.Eventually(t, func() bool { return objects() < before+many/2 }, 30*time.Second, 10*time.Millisecond,
		"%d times have left %d objects", many, objects()-before)
}

func TestContextsOfParentsThatHaveEndedAreForgotten(t *testing.T) {
	l := longHold(t)
	before := objects()
	for range many {
		parent, cancel := context.WithCancel(bg)
		ctx := l.Context(parent)
		cancel()
		<-ctx.Done()
	}
	requireFew(t, before)
	require.NoError(t, l.Unlock())
}

func TestContextsOfOneParentShareTheirMemory(t *testing.T) {
	l := longHold(t)
	parent, cancel := context.WithCancel(bg)
	defer cancel()
	before := objects()
	for range many {
		step, done := context.WithTimeout(l.Context(parent), time.Hour)
		require.NoError(t, step.Err())
		done()
		require.NoError(t, l.Context(bg).Err())
	}
	requireFew(t, before)
	ctx := l.Context(parent)
	require.NoError(t, l.Unlock())
	require.ErrorIs(t, context.Cause(ctx), recipes.ErrNotHeld)
}

type uncomparable struct {
	context.Context
	_ []int
}

func TestAParentNeedNotBeComparable(t *testing.T) {
	l := longHold(t)
	parent, cancel := context.WithCancel(bg)
	defer cancel()
	one, two := l.Context(uncomparable{Context: parent}), l.Context(uncomparable{Context: parent})
	require.NoError(t, one.Err())
	require.NoError(t, l.Unlock())
	require.ErrorIs(t, context.Cause(one), recipes.ErrNotHeld)
	require.ErrorIs(t, context.Cause(two), recipes.ErrNotHeld)
}

func TestLocksDoNotPileUp(t *testing.T) {
	c := recipes.NewClient(memdriver.New())
	defer c.Close()
	m := c.RWMutex("q")
	l, err := m.RLock(bg)
	require.NoError(t, err)
	for _, ctx := range []context.Context{l.Context(bg), bg} { // with re-entry, and without
		before := objects()
		for range many {
			other, err := m.RLock(ctx)
			require.NoError(t, err)
			require.NoError(t, other.Unlock())
		}
		requireFew(t, before)
	}
	require.NoError(t, l.Unlock())
}
