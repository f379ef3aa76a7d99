package recipes_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

const stays = `msg="dlock: a lock was dropped without Unlock and stays held"`

// leaks is a client with WithLeakLog. Its tests run in real time, because the
// runtime runs cleanups outside of synctest bubbles.
type leaks struct {
	*testing.T
	*recipes.Client
	log   *safeBuffer
	store *memdriver.Store
	n     int
}

func newLeaks(t *testing.T, opts ...recipes.Option) *leaks {
	l := &leaks{T: t, log: new(safeBuffer), store: memdriver.New(memdriver.WithSessionTimeout(time.Minute))}
	logger := recipes.WithLogger(slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	l.Client = recipes.NewClient(l.store, append(opts, logger, recipes.WithLeakLog())...)
	t.Cleanup(func() { require.NoError(t, l.Client.Close()) })
	return l
}

// on runs f on a goroutine of its own, so that no stack keeps the values of f
// alive afterwards.
func on(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (l *leaks) lock(name string) *recipes.Lock {
	lock, err := l.RWMutex(name).Lock(context.Background())
	require.NoError(l, err)
	return lock
}

// awaitLog collects garbage until the log has the text.
func (l *leaks) awaitLog(text string) {
	l.Helper()
	require.Eventually(l, func() bool {
		runtime.GC()
		return strings.Contains(l.log.String(), text)
	}, time.Minute, time.Millisecond, "the log has no %q", text)
}

// quiet requires that the named lock is not logged as dropped. To be sure that
// the garbage collector had the chance to find it, quiet drops other locks
// first and waits until those are logged.
func (l *leaks) quiet(lock string) {
	l.Helper()
	for range 3 {
		l.n++
		name := fmt.Sprintf("control/%d", l.n)
		on(func() { l.lock(name) })
		l.awaitLog(stays + " lock=" + name + " ")
	}
	require.NotContains(l, l.log.String(), stays+" lock="+lock+" ")
}

func TestADroppedLockIsLoggedWithWhereItWasTaken(t *testing.T) {
	l := newLeaks(t)
	var taken string
	on(func() {
		_, file, line, _ := runtime.Caller(0)
		_, err := l.RWMutex("q").Lock(context.Background())
		taken = fmt.Sprintf("%s:%d", file, line+1)
		assert.NoError(t, err)
	})
	l.awaitLog("level=WARN " + stays + " lock=q node=")
	assert.Contains(t, l.log.String(), "-W-0000000000 taken="+taken+"\n")

	other := recipes.NewClient(l.store)
	defer other.Close()
	_, err := other.RWMutex("q").TryLock(context.Background())
	require.ErrorIs(t, err, recipes.ErrLocked)
	l.quiet("other")
	assert.Equal(t, 1, strings.Count(l.log.String(), stays+" lock=q "))
}

func TestALockThatWasUnlockedIsNotLogged(t *testing.T) {
	l := newLeaks(t)
	m := l.RWMutex("q")
	ctx := context.Background()
	on(func() { require.NoError(t, l.lock("q").Unlock()) })
	on(func() {
		require.NoError(t, m.WithLock(ctx, func(ctx context.Context, _ *recipes.Lock) error {
			again, err := m.RLock(ctx)
			require.NoError(t, err)
			return again.Unlock()
		}))
	})
	l.quiet("q")
}

func TestALockIsInUseAsLongAsSomethingCanUnlockIt(t *testing.T) {
	for name, keeps := range map[string]func(*recipes.Lock) any{
		"the Lock":  func(lock *recipes.Lock) any { return lock },
		"a context": func(lock *recipes.Lock) any { return lock.Context(context.Background()) },
		"a child of its context": func(lock *recipes.Lock) any {
			return context.WithValue(lock.Context(context.Background()), callerKey{}, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeaks(t)
			var kept any
			on(func() { kept = keeps(l.lock("q")) })
			l.quiet("q")
			runtime.KeepAlive(kept)
			kept = nil
			l.awaitLog(stays + " lock=q ")
		})
	}
}

func TestAContextThatWasDroppedIsMadeAgain(t *testing.T) {
	l := newLeaks(t)
	lock := l.lock("q")
	parent, cancel := context.WithCancel(context.Background())
	defer cancel()
	same := lock.Context(parent)
	assert.Same(t, same, lock.Context(parent))
	on(func() { lock.Context(context.Background()) })
	l.quiet("q")
	again := lock.Context(context.Background())
	assert.Same(t, lock, recipes.FromContext(again))
	require.NoError(t, lock.Unlock())
	require.ErrorIs(t, context.Cause(again), recipes.ErrNotHeld)
	require.ErrorIs(t, context.Cause(same), recipes.ErrNotHeld)
}

func TestLocksThatCloseHasEndedAreNotLogged(t *testing.T) {
	l := newLeaks(t)
	closed := recipes.NewClient(l.store, recipes.WithLeakLog(),
		recipes.WithLogger(slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	on(func() {
		_, err := closed.RWMutex("q").Lock(context.Background())
		require.NoError(t, err)
		require.NoError(t, closed.Close())
	})
	l.quiet("q")
}

func TestEachOfLocksThatAreDroppedIsLogged(t *testing.T) {
	l := newLeaks(t)
	var taken string
	on(func() {
		_, file, line, _ := runtime.Caller(0)
		locks, err := recipes.LockAll(context.Background(), l.RWMutex("a"), l.RWMutex("b"), l.RWMutex("c"))
		taken = fmt.Sprintf("%s:%d", file, line+1)
		assert.NoError(t, err)
		locks.Lost()
	})
	for _, name := range []string{"a", "b", "c"} {
		l.awaitLog(stays + " lock=" + name + " ")
	}
	assert.Equal(t, 3, strings.Count(l.log.String(), " taken="+taken+"\n"))
}
