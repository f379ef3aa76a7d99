package dlock_test

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
)

func TestVetReportsCopiesOfClientsMutexesAndLocks(t *testing.T) {
	source, err := os.ReadFile("testdata/copies/main.go")
	require.NoError(t, err)
	out, err := exec.Command("go", "vet", "-copylocks", "./testdata/copies").CombinedOutput()
	var failed *exec.ExitError
	require.ErrorAs(t, err, &failed, "go vet has reported no copy")

	copies := 0
	for i, line := range strings.Split(string(source), "\n") {
		where := fmt.Sprintf("main.go:%d:", i+1)
		if strings.HasSuffix(line, "// copied") {
			copies++
			assert.Contains(t, string(out), where, line)
		} else {
			assert.NotContains(t, string(out), where, line)
		}
	}
	assert.Equal(t, 4, copies)
}

// copyOf copies a Lock by reflection, because go vet would report an
// assignment.
func copyOf(l *dlock.Lock) *dlock.Lock {
	c := new(dlock.Lock)
	reflect.ValueOf(c).Elem().Set(reflect.ValueOf(l).Elem())
	return c
}

func TestACopyOfALockIsTheSameLock(t *testing.T) {
	ctx := t.Context()
	store := memdriver.New()
	c, other := dlock.NewClient(store), dlock.NewClient(store)
	defer c.Close()
	defer other.Close()
	m := c.RWMutex("q")

	outer, err := m.Lock(ctx)
	require.NoError(t, err)
	inner, err := m.Lock(outer.Context(ctx))
	require.NoError(t, err)

	for _, l := range []*dlock.Lock{inner, outer} {
		copied := copyOf(l)
		ctxOfLock := copied.Context(ctx)
		require.NoError(t, l.Unlock())
		assert.ErrorIs(t, copied.Unlock(), dlock.ErrNotHeld)
		assert.ErrorIs(t, copied.Err(), dlock.ErrNotHeld)
		assert.Error(t, ctxOfLock.Err())
		if l == inner {
			_, err := other.RWMutex("q").TryRLock(ctx)
			require.ErrorIs(t, err, dlock.ErrLocked, "the outer Lock still holds")
		}
	}

	next, err := other.RWMutex("q").Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, next.Unlock())
}

func TestUnlockOfACopyUnlocksTheLock(t *testing.T) {
	c := dlock.NewClient(memdriver.New())
	defer c.Close()
	l, err := c.RWMutex("q").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, copyOf(l).Unlock())
	assert.ErrorIs(t, l.Unlock(), dlock.ErrNotHeld)
}

// Overwriting a Lock with another one must not release it while a copy exists.
func TestOverwritingALockDoesNotReleaseIt(t *testing.T) {
	c := dlock.NewClient(memdriver.New())
	defer c.Close()
	one, err := c.RWMutex("one").Lock(t.Context())
	require.NoError(t, err)
	two, err := c.RWMutex("two").Lock(t.Context())
	require.NoError(t, err)
	kept := copyOf(one)
	reflect.ValueOf(one).Elem().Set(reflect.ValueOf(two).Elem())
	require.NoError(t, one.Unlock())
	assert.ErrorIs(t, two.Err(), dlock.ErrNotHeld)
	assert.NoError(t, kept.Err())
	require.NoError(t, kept.Unlock())
}
