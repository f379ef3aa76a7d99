package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock"
)

// fleet mixes clients of another library with dlock clients that use its node
// names.
type fleet struct {
	names  string
	labels []string // of the library's locks in foreignLocks
	start  func(w *fixture) foreignLibrary
	write  string // kind of the library's write lock
	read   string // kind of its read lock, or empty
	// deadlocks says that readers also wait for later writers (python-zk/kazoo
	// 649).
	deadlocks bool
}

var fleets = []fleet{
	{"curator", []string{"Curator `InterProcessReadWriteLock`, `writeLock()`", "Curator `InterProcessReadWriteLock`, `readLock()`"}, curator, "write", "read", false},
	{"curator-mutex", []string{"Curator `InterProcessMutex`", "go-zookeeper `zk.Lock`"}, curator, "mutex", "", false},
	{"kazoo", []string{"kazoo `Lock`", "kazoo `WriteLock`", "kazoo `ReadLock`"}, kazoo, "write", "read", true},
}

// The clients name their nodes as the other library does.
func TestNamesOfOtherLibraries(t *testing.T) {
	w := newFixture(t)
	libraries := make(map[string]foreignLibrary)
	var rows [][]string
	for _, f := range fleets {
		clients := w.clients(2, "&names="+f.names)
		for i, label := range f.labels {
			lock := foreignLocks[slices.IndexFunc(foreignLocks, func(l foreignLock) bool { return l.label == label })]
			if libraries[lock.library()] == nil {
				libraries[lock.library()] = lock.start(w)
			}
			d := comparison{w, libraries[lock.library()], lock, fmt.Sprintf("%s%d", f.names, i), clients}
			row := []string{"`" + f.names + "`", label, d.contendOwn(dlock.Exclusive), "-", d.contendForeign(dlock.Exclusive), "-"}
			if f.read != "" {
				row[3], row[5] = d.contendOwn(dlock.Shared), d.contendForeign(dlock.Shared)
			}
			rows = append(rows, row)
		}
	}
	isDocumented(t, "names", "TestNamesOfOtherLibraries",
		markdown("`names`", "the other lock", "they hold, `Lock`", "they hold, `RLock`", "they want, dlock exclusive", "they want, dlock shared")(rows))
}

// Both libraries increment a number in a file, which must not change under
// readers.
func TestNoUpdateOfAMixedFleetIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 4,000 locks of each library")
	}
	const writes, reads = 2000, 500
	for _, f := range fleets {
		t.Run(f.names, func(t *testing.T) {
			w := newFixture(t)
			theirs := f.start(w).(*program)
			clients := w.clients(2, "&names="+f.names)
			file := filepath.Join(t.TempDir(), "number")
			require.NoError(t, os.WriteFile(file, []byte("0"), 0o600))

			began := time.Now()
			var all errgroup.Group
			await := func(outcome <-chan error) { all.Go(func() error { return <-outcome }) }
			await(theirs.count(f.write, w.path("q"), writes, file))
			all.Go(func() error { return count(clients[0].RWMutex("q"), writes, file) })
			if f.read != "" && !f.deadlocks {
				await(theirs.count(f.read, w.path("q"), reads, file))
			}
			if f.read != "" {
				all.Go(func() error { return readTwice(clients[1].RWMutex("q"), reads, file) })
			}
			require.NoError(t, all.Wait())
			n, err := number(file)
			require.NoError(t, err)
			require.Equal(t, 2*writes, n)
			t.Logf("%s: %d updates in %v", f.names, n, time.Since(began).Round(time.Second))
		})
	}
}

func number(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

func count(m *dlock.RWMutex, times int, file string) error {
	return repeat(m.Lock, times, func() error {
		n, err := number(file)
		if err != nil {
			return err
		}
		return os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600)
	})
}

func readTwice(m *dlock.RWMutex, times int, file string) error {
	return repeat(m.RLock, times, func() error {
		first, err := number(file)
		if err != nil {
			return err
		}
		if second, err := number(file); err != nil || second != first {
			return fmt.Errorf("a reader has read %d and then %d: %v", first, second, err)
		}
		return nil
	})
}

func repeat(lock func(context.Context) (*dlock.Lock, error), times int, f func() error) error {
	for range times {
		l, err := lock(context.Background())
		if err != nil {
			return err
		}
		if err := errors.Join(f(), l.Unlock()); err != nil {
			return err
		}
	}
	return nil
}
